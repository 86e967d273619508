#include "bie/formats/jpeg.h"

#include <turbojpeg.h>

#include <memory>
#include <string>
#include <vector>

#include "bie/formats/error.h"
#include "bie/formats/mapped_file.h"
#include "formats/pixels.h"

namespace bie::formats {
namespace {

constexpr const char* kind = "JPEG file";

struct Destroy {
  void operator()(void* handle) const { tjDestroy(handle); }
};

/// An image whose headers have been read.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(kind, path), handle_(tjInitDecompress()) {
    if (!handle_) fail_file(kind, path, "there is not enough memory to read it");
    int subsampling = 0;
    if (tjDecompressHeader3(handle_.get(), file_.data(), size(), &width_, &height_, &subsampling, &colours_) != 0)
      fail();
    if (colours_ == TJCS_CMYK || colours_ == TJCS_YCCK)
      fail_file(kind, path, "has the colours of printers (CMYK), red, green and blue are wanted");
    check_pixels(kind, path, height_, width_);
  }

  PictureFacts facts() const { return {height_, width_, colours_ != TJCS_GRAY}; }

  /// [height, width, channels].
  std::vector<std::uint8_t> pixels(std::int64_t channels) {
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(channels * height_ * width_));
    // A file with thousands of scans would take minutes; one that is cut off gives a warning.
    constexpr int flags = TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS;
    if (tjDecompress2(handle_.get(), file_.data(), size(), pixels.data(), width_, 0, height_,
                      channels == 1 ? TJPF_GRAY : TJPF_RGB, flags) != 0)
      fail();
    return pixels;
  }

 private:
  unsigned long size() const { return static_cast<unsigned long>(file_.size()); }
  [[noreturn]] void fail() { fail_file(kind, path_, "cannot be read: ", tjGetErrorStr2(handle_.get())); }

  const std::string& path_;
  MappedFile file_;
  std::unique_ptr<void, Destroy> handle_;
  int width_ = 0, height_ = 0, colours_ = 0;
};

}  // namespace

PictureFacts jpeg_facts(const std::string& path) { return Reader(path).facts(); }

Array load_jpeg(const std::string& path, std::int64_t channels) {
  Reader reader(path);
  const PictureFacts facts = reader.facts();
  return array_of(Element::u8, {facts.height, facts.width, channels}, reader.pixels(channels));
}

}  // namespace bie::formats
