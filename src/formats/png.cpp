#include "bie/formats/png.h"

#include <png.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "bie/formats/error.h"
#include "formats/pixels.h"

namespace bie::formats {
namespace {

constexpr const char* kind = "PNG file";

/// An image whose header has been read; libpng's own memory goes with it.
class Reader {
 public:
  Reader(const std::string& path, const MappedFile& file) : path_(path) {
    image_.version = PNG_IMAGE_VERSION;
    if (png_image_begin_read_from_memory(&image_, file.data(), static_cast<std::size_t>(file.size())) == 0) fail();
    check_pixels(kind, path, image_.height, image_.width);
  }
  ~Reader() { png_image_free(&image_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  PictureFacts facts() const { return {image_.height, image_.width, (image_.format & PNG_FORMAT_FLAG_COLOR) != 0}; }

  /// [height, width, channels].
  std::vector<std::uint8_t> pixels(std::int64_t channels) {
    image_.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(facts().height * facts().width * channels));
    const png_color black{0, 0, 0};
    if (png_image_finish_read(&image_, &black, pixels.data(), 0, nullptr) == 0) fail();
    return pixels;
  }

 private:
  [[noreturn]] void fail() {
    const std::string message = image_.message;
    png_image_free(&image_);  // a constructor that throws has no destructor
    fail_file(kind, path_, "cannot be read: ", message);
  }

  const std::string& path_;
  png_image image_{};
};

}  // namespace

PictureFacts png_facts(const std::string& path, const MappedFile& file) { return Reader(path, file).facts(); }

Array load_png(const std::string& path, const MappedFile& file, std::int64_t channels) {
  Reader reader(path, file);
  const PictureFacts facts = reader.facts();
  return array_of(Element::u8, {facts.height, facts.width, channels}, reader.pixels(channels));
}

}  // namespace bie::formats
