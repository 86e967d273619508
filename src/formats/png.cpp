#include "bie/formats/png.h"

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bie/formats/error.h"
#include "formats/orientation.h"
#include "formats/pixels.h"

namespace bie::formats {
namespace {

constexpr const char* kind = "PNG file";

/// A file whose header has been read. Samples are taken as they are stored: a gamma (gAMA) or a colour profile is not
/// applied, as no program that trains nets applies it. So it is libpng's full interface that reads them, because the
/// simplified one takes 16-bit samples for linear light.
class Reader {
 public:
  Reader(const std::string& path, const MappedFile& file) : path_(path), at_(file.data()), left_(file.size()) {
    handle_.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &Reader::on_error, &Reader::on_warning);
    if (handle_.png != nullptr) handle_.info = png_create_info_struct(handle_.png);
    if (handle_.info == nullptr) fail_file(kind, path, "there is not enough memory to read it");
    png_set_read_fn(handle_.png, this, &Reader::on_read);
    guarded([](Reader* self) { png_read_info(self->handle_.png, self->handle_.info); });
    check_pixels(kind, path, height(), width());
    // Deflate makes at most 1032 bytes of one: what a small file only claims to hold takes no memory.
    constexpr std::int64_t largest_ratio = 1032;
    const auto row_bytes = static_cast<std::int64_t>(png_get_rowbytes(handle_.png, handle_.info));
    if (row_bytes * height() > largest_ratio * file.size())
      fail_file(kind, path, "cannot be read: ", file.size(), " bytes cannot hold the ", height(), "x", width(),
                " pixels of its header");
    png_bytep exif = nullptr;
    png_uint_32 size = 0;
    if (png_get_eXIf_1(handle_.png, handle_.info, &size, &exif) != 0) orientation_ = orientation_of(exif, size);
  }

  PictureFacts facts() const {
    PictureFacts facts{height(), width(), (png_get_color_type(handle_.png, handle_.info) & PNG_COLOR_MASK_COLOR) != 0};
    if (orientation_.transposed) std::swap(facts.height, facts.width);
    return facts;
  }

  /// Like load_png.
  Array picture(std::int64_t channels) {
    guarded([](Reader* self) { self->ask_for_rgba(); });
    const std::int64_t h = height(), w = width();
    const bool in_passes = png_get_interlace_type(handle_.png, handle_.info) != PNG_INTERLACE_NONE;
    std::vector<std::uint8_t> rgba(static_cast<std::size_t>(4 * w * (in_passes ? h : 1)));
    std::vector<png_bytep> rows;
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(h * w * channels));
    const auto write_row = [&](const std::uint8_t* from, std::int64_t y) {
      for (std::int64_t x = 0; x < w; ++x) write_pixel(from + 4 * x, channels, pixels.data() + (y * w + x) * channels);
    };
    if (in_passes) {
      for (std::int64_t y = 0; y < h; ++y) rows.push_back(rgba.data() + 4 * w * y);
      rows_ = rows.data();
      guarded([](Reader* self) { png_read_image(self->handle_.png, self->rows_); });
      for (std::int64_t y = 0; y < h; ++y) write_row(rows[static_cast<std::size_t>(y)], y);
    } else {
      row_ = rgba.data();
      for (std::int64_t y = 0; y < h; ++y) {
        guarded([](Reader* self) { png_read_row(self->handle_.png, self->row_, nullptr); });
        write_row(row_, y);
      }
    }
    return shown(std::move(pixels), h, w, channels, orientation_);
  }

 private:
  /// libpng's memory.
  struct Handle {
    ~Handle() { png_destroy_read_struct(&png, &info, nullptr); }
    png_structp png = nullptr;
    png_infop info = nullptr;
  };

  /// Runs a body that libpng may leave by longjmp, which is why it holds no object with a destructor.
  void guarded(void (*body)(Reader*)) {
    if (setjmp(png_jmpbuf(handle_.png)) != 0) fail_file(kind, path_, "cannot be read: ", message_);
    body(this);
  }

  static void on_error(png_structp png, png_const_charp message) {
    auto* const self = static_cast<Reader*>(png_get_error_ptr(png));
    std::strncpy(self->message_, message, sizeof(self->message_) - 1);
    png_longjmp(png, 1);
  }
  static void on_warning(png_structp /*png*/, png_const_charp /*message*/) {}
  static void on_read(png_structp png, png_bytep to, std::size_t count) {
    auto* const self = static_cast<Reader*>(png_get_io_ptr(png));
    if (static_cast<std::int64_t>(count) > self->left_) png_error(png, "the file ends too early");
    std::memcpy(to, self->at_, count);
    self->at_ += count;
    self->left_ -= static_cast<std::int64_t>(count);
  }

  /// Palettes, few bits and transparent colours are expanded, 16 bits rounded to 8.
  void ask_for_rgba() {
    png_set_expand(handle_.png);
    png_set_scale_16(handle_.png);
    png_set_gray_to_rgb(handle_.png);
    png_set_add_alpha(handle_.png, 0xff, PNG_FILLER_AFTER);
    png_set_interlace_handling(handle_.png);
    png_read_update_info(handle_.png, handle_.info);
  }

  std::int64_t height() const { return png_get_image_height(handle_.png, handle_.info); }
  std::int64_t width() const { return png_get_image_width(handle_.png, handle_.info); }

  const std::string& path_;
  const std::uint8_t* at_;
  std::int64_t left_;
  Handle handle_;
  png_bytepp rows_ = nullptr;
  png_bytep row_ = nullptr;
  char message_[256] = {};
  Orientation orientation_;
};

}  // namespace

PictureFacts png_facts(const std::string& path, const MappedFile& file) { return Reader(path, file).facts(); }

Array load_png(const std::string& path, const MappedFile& file, std::int64_t channels) {
  return Reader(path, file).picture(channels);
}

}  // namespace bie::formats
