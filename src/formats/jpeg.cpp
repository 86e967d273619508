#include "bie/formats/jpeg.h"

#include <turbojpeg.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bie/formats/error.h"
#include "formats/orientation.h"
#include "formats/pixels.h"

namespace bie::formats {
namespace {

constexpr const char* kind = "JPEG file";

struct Destroy {
  void operator()(void* handle) const { tjDestroy(handle); }
};

/// Whether the file is progressive: its coefficients then lie in memory all together. Markers up to the frame's.
bool is_progressive(const MappedFile& file) {
  const std::uint8_t* const bytes = file.data();
  for (std::int64_t at = 2; at + 4 <= file.size() && bytes[at] == 0xff;) {
    const int marker = bytes[at + 1];
    if (marker == 0xff) {
      ++at;  // padding
      continue;
    }
    const bool is_frame = marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
    if (is_frame) return marker != 0xc0 && marker != 0xc1;
    at += 2 + (bytes[at + 2] << 8 | bytes[at + 3]);
  }
  return true;
}

/// A JPEG file whose headers have been read.
class Reader {
 public:
  Reader(const std::string& path, const MappedFile& file) : path_(path), file_(file), handle_(tjInitDecompress()) {
    if (!handle_) fail_file(kind, path, "there is not enough memory to read it");
    int subsampling = 0;
    if (tjDecompressHeader3(handle_.get(), file_.data(), size(), &width_, &height_, &subsampling, &colours_) != 0)
      fail();
    if (colours_ == TJCS_CMYK || colours_ == TJCS_YCCK)
      fail_file(kind, path, "expected red, green and blue, got the colours of printers (CMYK)");
    if (height_ < 1 || width_ < 1) fail_file(kind, path, "cannot be read: its header says ", height_, "x", width_);
    // A block of 8x8 pixels takes a bit at least: what a small file only claims to hold takes no memory.
    constexpr std::int64_t most_pixels_a_byte = 1024;
    if (std::int64_t{height_} * width_ > most_pixels_a_byte * file.size())
      fail_file(kind, path, "cannot be read: ", file.size(), " bytes cannot hold the ", height_, "x", width_,
                " pixels of its header");
    // A large file of one scan is decoded at a fraction of its size, in the memory of that.
    constexpr std::int64_t most_stored = 1 << 28;
    const std::int64_t pixels = std::int64_t{height_} * width_;
    if (pixels > most_pixels && (pixels > most_stored || is_progressive(file)))
      check_pixels(kind, path, height_, width_);
    orientation_ = orientation_of(file_.data(), static_cast<std::size_t>(file_.size()));
  }

  PictureFacts facts() const {
    PictureFacts facts{height_, width_, colours_ != TJCS_GRAY};
    if (orientation_.transposed) std::swap(facts.height, facts.width);
    return facts;
  }

  /// Like load_jpeg.
  Array picture(std::int64_t channels, const std::optional<std::array<std::int64_t, 2>>& at_least) {
    if (at_least)
      make_smaller((*at_least)[orientation_.transposed ? 1 : 0], (*at_least)[orientation_.transposed ? 0 : 1]);
    check_pixels(kind, path_, height_, width_);
    return shown(stored(channels), height_, width_, channels, orientation_);
  }

 private:
  unsigned long size() const { return static_cast<unsigned long>(file_.size()); }
  [[noreturn]] void fail() { fail_file(kind, path_, "cannot be read: ", tjGetErrorStr2(handle_.get())); }

  void make_smaller(std::int64_t height, std::int64_t width) {
    const int stored_height = height_, stored_width = width_;
    for (const int divisor : {2, 4, 8}) {
      const tjscalingfactor factor{1, divisor};
      const int h = TJSCALED(stored_height, factor), w = TJSCALED(stored_width, factor);
      const bool is_too_large =
          height_ > most_side || width_ > most_side || std::int64_t{height_} * width_ > most_pixels;
      if ((h < 2 * height || w < 2 * width) && !is_too_large) return;
      height_ = h;
      width_ = w;
    }
  }

  std::vector<std::uint8_t> stored(std::int64_t channels) {
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(channels * height_ * width_));
    // A file with thousands of scans would take minutes; one that is cut off gives a warning.
    constexpr int flags = TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS;
    if (tjDecompress2(handle_.get(), file_.data(), size(), pixels.data(), width_, 0, height_,
                      channels == 1 ? TJPF_GRAY : TJPF_RGB, flags) != 0)
      fail();
    return pixels;
  }

  const std::string& path_;
  const MappedFile& file_;
  std::unique_ptr<void, Destroy> handle_;
  int width_ = 0, height_ = 0, colours_ = 0;  ///< as they are stored, or read
  Orientation orientation_;
};

}  // namespace

PictureFacts jpeg_facts(const std::string& path, const MappedFile& file) { return Reader(path, file).facts(); }

Array load_jpeg(const std::string& path, const MappedFile& file, std::int64_t channels,
                const std::optional<std::array<std::int64_t, 2>>& at_least) {
  return Reader(path, file).picture(channels, at_least);
}

}  // namespace bie::formats
