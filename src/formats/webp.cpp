#include "bie/formats/webp.h"

#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>
#include <utility>
#include <vector>

#include "bie/formats/error.h"
#include "formats/orientation.h"
#include "formats/pixels.h"

namespace bie::formats {
namespace {

constexpr const char* kind = "WebP file";

WebPBitstreamFeatures features_of(const std::string& path, const MappedFile& file) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(file.data(), static_cast<std::size_t>(file.size()), &features) != VP8_STATUS_OK)
    fail_file(kind, path, "cannot be read: its header is damaged or cut off");
  if (features.has_animation != 0) fail_file(kind, path, "expected one picture, got a moving one");
  check_pixels(kind, path, features.height, features.width);
  return features;
}

struct Free {
  void operator()(std::uint8_t* pixels) const { WebPFree(pixels); }
};

/// The note of a camera, which lies in a chunk of its own.
Orientation orientation_of(const MappedFile& file) {
  const WebPData data{file.data(), static_cast<std::size_t>(file.size())};
  const std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)> demuxer(WebPDemux(&data), WebPDemuxDelete);
  WebPChunkIterator chunk;
  if (!demuxer || WebPDemuxGetChunk(demuxer.get(), "EXIF", 1, &chunk) == 0) return {};
  const Orientation orientation = formats::orientation_of(chunk.chunk.bytes, chunk.chunk.size);
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

}  // namespace

PictureFacts webp_facts(const std::string& path, const MappedFile& file) {
  const WebPBitstreamFeatures features = features_of(path, file);
  PictureFacts facts{features.height, features.width, true};
  if (orientation_of(file).transposed) std::swap(facts.height, facts.width);
  return facts;
}

Array load_webp(const std::string& path, const MappedFile& file, std::int64_t channels) {
  const WebPBitstreamFeatures features = features_of(path, file);
  int width = 0, height = 0;
  const std::unique_ptr<std::uint8_t, Free> rgba(
      WebPDecodeRGBA(file.data(), static_cast<std::size_t>(file.size()), &width, &height));
  if (!rgba) fail_file(kind, path, "cannot be read: its pixels are damaged or cut off");
  const std::int64_t count = std::int64_t{features.height} * features.width;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(count * channels));
  for (std::int64_t i = 0; i < count; ++i) write_pixel(rgba.get() + 4 * i, channels, pixels.data() + i * channels);
  return shown(std::move(pixels), features.height, features.width, channels, orientation_of(file));
}

}  // namespace bie::formats
