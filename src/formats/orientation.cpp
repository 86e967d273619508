#include "formats/orientation.h"

#include <libexif/exif-data.h>

#include <algorithm>
#include <climits>
#include <memory>
#include <string_view>
#include <utility>

namespace bie::formats {
namespace {

struct Unref {
  void operator()(ExifData* data) const { exif_data_unref(data); }
};

/// EXIF's numbers are 1 to 8; anything else is shown as it is stored.
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

}  // namespace

Orientation orientation_of(const std::uint8_t* exif, std::size_t size) {
  if (size == 0 || size > UINT_MAX / 2) return {};
  constexpr std::string_view head("Exif\0\0", 6);
  const std::string_view all(reinterpret_cast<const char*>(exif), size);
  // libexif finds the data in a JPEG file and behind its own head, and in nothing else.
  std::vector<std::uint8_t> with_head;
  if (all.starts_with("II*") || all.starts_with("MM")) {
    with_head.assign(head.begin(), head.end());
    with_head.insert(with_head.end(), exif, exif + size);
    exif = with_head.data();
    size = with_head.size();
  }
  const std::unique_ptr<ExifData, Unref> data(exif_data_new_from_data(exif, static_cast<unsigned>(size)));
  const ExifEntry* const entry = data ? exif_content_get_entry(data->ifd[EXIF_IFD_0], EXIF_TAG_ORIENTATION) : nullptr;
  if (entry == nullptr || entry->format != EXIF_FORMAT_SHORT || entry->components < 1 || entry->size < 2) return {};
  return orientation_of(exif_get_short(entry->data, exif_data_get_byte_order(data.get())));
}

Array shown(std::vector<std::uint8_t> stored, std::int64_t height, std::int64_t width, std::int64_t channels,
            const Orientation& orientation) {
  const auto& [transposed, from_right, from_bottom] = orientation;
  const std::int64_t stored_width = width;
  if (transposed) std::swap(height, width);
  if (!transposed && !from_right && !from_bottom)
    return array_of(Element::u8, {height, width, channels}, std::move(stored));
  std::vector<std::uint8_t> turned(stored.size());
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x) {
      const std::int64_t down = from_bottom ? height - 1 - y : y, along = from_right ? width - 1 - x : x;
      const std::int64_t source = transposed ? along * stored_width + down : down * stored_width + along;
      std::copy_n(stored.begin() + source * channels, channels, turned.begin() + (y * width + x) * channels);
    }
  return array_of(Element::u8, {height, width, channels}, std::move(turned));
}

}  // namespace bie::formats
