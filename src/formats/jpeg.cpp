#include "bie/formats/jpeg.h"

#include <libexif/exif-data.h>
#include <turbojpeg.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bie/formats/error.h"
#include "formats/pixels.h"

namespace bie::formats {
namespace {

constexpr const char* kind = "JPEG file";

struct Destroy {
  void operator()(void* handle) const { tjDestroy(handle); }
};

/// EXIF's orientation: how the stored rows and columns lie in the picture that is shown.
struct Orientation {
  bool transposed = false;  ///< stored rows are shown as columns
  bool from_right = false, from_bottom = false;
};

/// Of EXIF's numbers 1 to 8; anything else is shown as it is stored.
Orientation orientation_of(int number) {
  switch (number) {
    case 2: return {false, true, false};
    case 3: return {false, true, true};
    case 4: return {false, false, true};
    case 5: return {true, false, false};
    case 6: return {true, true, false};
    case 7: return {true, true, true};
    case 8: return {true, false, true};
    default: return {};
  }
}

struct Unref {
  void operator()(ExifData* data) const { exif_data_unref(data); }
};

Orientation orientation_of(const MappedFile& file) {
  const std::unique_ptr<ExifData, Unref> exif(exif_data_new_from_data(file.data(), static_cast<unsigned>(file.size())));
  const ExifEntry* const entry = exif ? exif_content_get_entry(exif->ifd[EXIF_IFD_0], EXIF_TAG_ORIENTATION) : nullptr;
  if (entry == nullptr || entry->format != EXIF_FORMAT_SHORT || entry->components < 1) return {};
  return orientation_of(exif_get_short(entry->data, exif_data_get_byte_order(exif.get())));
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
      fail_file(kind, path, "has the colours of printers (CMYK), red, green and blue are wanted");
    check_pixels(kind, path, height_, width_);
    orientation_ = orientation_of(file_);
  }

  PictureFacts facts() const {
    PictureFacts facts{height_, width_, colours_ != TJCS_GRAY};
    if (orientation_.transposed) std::swap(facts.height, facts.width);
    return facts;
  }

  /// As load_jpeg.
  Array picture(std::int64_t channels, const std::optional<std::array<std::int64_t, 2>>& at_least) {
    if (at_least)
      make_smaller((*at_least)[orientation_.transposed ? 1 : 0], (*at_least)[orientation_.transposed ? 0 : 1]);
    return shown(stored(channels), channels);
  }

 private:
  unsigned long size() const { return static_cast<unsigned long>(file_.size()); }
  [[noreturn]] void fail() { fail_file(kind, path_, "cannot be read: ", tjGetErrorStr2(handle_.get())); }

  void make_smaller(std::int64_t height, std::int64_t width) {
    const int stored_height = height_, stored_width = width_;
    for (const int divisor : {2, 4, 8}) {
      const tjscalingfactor factor{1, divisor};
      const int h = TJSCALED(stored_height, factor), w = TJSCALED(stored_width, factor);
      if (h < 2 * height || w < 2 * width) return;
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

  Array shown(std::vector<std::uint8_t> pixels, std::int64_t channels) const {
    const auto& [transposed, from_right, from_bottom] = orientation_;
    const std::int64_t height = transposed ? width_ : height_, width = transposed ? height_ : width_;
    if (!transposed && !from_right && !from_bottom)
      return array_of(Element::u8, {height, width, channels}, std::move(pixels));
    std::vector<std::uint8_t> turned(pixels.size());
    for (std::int64_t y = 0; y < height; ++y)
      for (std::int64_t x = 0; x < width; ++x) {
        const std::int64_t down = from_bottom ? height - 1 - y : y, along = from_right ? width - 1 - x : x;
        const std::int64_t source = transposed ? along * width_ + down : down * width_ + along;
        for (std::int64_t c = 0; c < channels; ++c)
          turned[static_cast<std::size_t>((y * width + x) * channels + c)] =
              pixels[static_cast<std::size_t>(source * channels + c)];
      }
    return array_of(Element::u8, {height, width, channels}, std::move(turned));
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
