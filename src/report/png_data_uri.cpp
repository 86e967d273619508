#include "report/png_data_uri.h"

#include <zlib.h>

#include <cstddef>
#include <string_view>

namespace bie::report {
namespace {

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(body.data()), body.size());
  return big_endian(static_cast<std::uint32_t>(data.size())) + body + big_endian(static_cast<std::uint32_t>(crc));
}

std::string deflated(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string out(size, '\0');
  // With room for compressBound nothing can fail but memory, and then there is nothing to show.
  const int status = compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                               reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), Z_BEST_COMPRESSION);
  out.resize(status == Z_OK ? size : 0);
  return out;
}

std::string base64(std::string_view bytes) {
  constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j)
      group = group << 8 | (i + j < bytes.size() ? static_cast<std::uint8_t>(bytes[i + j]) : 0u);
    for (std::size_t j = 0; j < 4; ++j) text += i + j <= bytes.size() ? digits[group >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

}  // namespace

bool complete(const Picture& picture) {
  const bool sizes = picture.width > 0 && picture.height > 0 && (picture.channels == 1 || picture.channels == 3);
  return sizes &&
         picture.pixels.size() / picture.channels / picture.width == static_cast<std::size_t>(picture.height) &&
         picture.pixels.size() % (static_cast<std::size_t>(picture.channels) * picture.width) == 0;
}

std::string png_data_uri(const Picture& picture) {
  const std::size_t row_bytes = static_cast<std::size_t>(picture.width) * picture.channels;
  std::string rows;
  for (int row = 0; row < picture.height; ++row) {
    rows += '\0';  // the filter: none
    rows.append(reinterpret_cast<const char*>(picture.pixels.data()) + row * row_bytes, row_bytes);
  }
  constexpr char bit_depth = 8, grey = 0, colour = 2;
  const std::string header = big_endian(static_cast<std::uint32_t>(picture.width)) +
                             big_endian(static_cast<std::uint32_t>(picture.height)) + bit_depth +
                             (picture.channels == 1 ? grey : colour) + std::string(3, '\0');
  return "data:image/png;base64," +
         base64("\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", deflated(rows)) + chunk("IEND", ""));
}

}  // namespace bie::report
