#include "io/png.h"

#include <ATen/ops/empty.h>
#include <png.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "io/file_error.h"
#include "io/regular_file.h"

namespace bie::io {
namespace {

constexpr const char* kind = "PNG file";
constexpr std::int64_t max_side = 1 << 12;

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

/// An image whose header has been read; libpng's own memory goes with it.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(::fdopen(open_regular(kind, path), "rb")) {
    if (!file_) fail_file(kind, path, "cannot be opened: ", std::strerror(errno));
    image_.version = PNG_IMAGE_VERSION;
    if (png_image_begin_read_from_stdio(&image_, file_.get()) == 0) fail();
    if (image_.width > max_side || image_.height > max_side)
      fail_file(kind, path, "is ", image_.height, "x", image_.width, ", at most ", max_side, "x", max_side, " is read");
  }
  ~Reader() { png_image_free(&image_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  PngFacts facts() const { return {image_.height, image_.width, (image_.format & PNG_FORMAT_FLAG_COLOR) != 0}; }

  /// uint8 [height, width, channels].
  at::Tensor pixels(std::int64_t channels) {
    image_.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    at::Tensor pixels = at::empty({image_.height, image_.width, channels}, at::kByte);
    const png_color black{0, 0, 0};
    if (png_image_finish_read(&image_, &black, pixels.mutable_data_ptr<std::uint8_t>(), 0, nullptr) == 0) fail();
    return pixels;
  }

 private:
  [[noreturn]] void fail() {
    const std::string message = image_.message;
    png_image_free(&image_);  // a constructor that throws has no destructor
    fail_file(kind, path_, "cannot be read: ", message);
  }

  const std::string& path_;
  std::unique_ptr<std::FILE, Close> file_;
  png_image image_{};
};

}  // namespace

PngFacts png_facts(const std::string& path) { return Reader(path).facts(); }

at::Tensor load_png(const std::string& path, std::int64_t channels) {
  return Reader(path).pixels(channels).permute({2, 0, 1}).contiguous();
}

}  // namespace bie::io
