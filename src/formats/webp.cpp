#include "bie/formats/webp.h"

#include <webp/decode.h>

#include <memory>
#include <utility>
#include <vector>

#include "bie/formats/error.h"
#include "formats/pixels.h"

namespace bie::formats {
namespace {

constexpr const char* kind = "WebP file";

WebPBitstreamFeatures features_of(const std::string& path, const MappedFile& file) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(file.data(), static_cast<std::size_t>(file.size()), &features) != VP8_STATUS_OK)
    fail_file(kind, path, "cannot be read: its header is damaged or cut off");
  if (features.has_animation != 0) fail_file(kind, path, "moves, one picture is wanted");
  check_pixels(kind, path, features.height, features.width);
  return features;
}

struct Free {
  void operator()(std::uint8_t* pixels) const { WebPFree(pixels); }
};

/// 0.299 red + 0.587 green + 0.114 blue, in 65536ths.
std::uint8_t luminance(const std::uint8_t* rgb) {
  return static_cast<std::uint8_t>((19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 32768) >> 16);
}

}  // namespace

PictureFacts webp_facts(const std::string& path, const MappedFile& file) {
  const WebPBitstreamFeatures features = features_of(path, file);
  return {features.height, features.width, true};
}

Array load_webp(const std::string& path, const MappedFile& file, std::int64_t channels) {
  const WebPBitstreamFeatures features = features_of(path, file);
  int width = 0, height = 0;
  const std::unique_ptr<std::uint8_t, Free> rgba(
      WebPDecodeRGBA(file.data(), static_cast<std::size_t>(file.size()), &width, &height));
  if (!rgba) fail_file(kind, path, "cannot be read: its pixels are damaged or cut off");
  const std::int64_t count = std::int64_t{features.height} * features.width;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(count * channels));
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint8_t* const from = rgba.get() + 4 * i;
    for (int c = 0; c < 3; ++c) from[c] = static_cast<std::uint8_t>((from[c] * from[3] + 127) / 255);
    if (channels == 1)
      pixels[static_cast<std::size_t>(i)] = luminance(from);
    else
      for (int c = 0; c < 3; ++c) pixels[static_cast<std::size_t>(3 * i + c)] = from[c];
  }
  return array_of(Element::u8, {features.height, features.width, channels}, std::move(pixels));
}

}  // namespace bie::formats
