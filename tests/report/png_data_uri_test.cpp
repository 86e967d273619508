// Written pictures are read back, pixel for pixel.
#include "report/png_data_uri.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace bie::report::test {
namespace {

std::string decoded_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    group = group << 6 | static_cast<std::uint32_t>(digits.find(c));
    bits += 6;
    if (bits >= 8) bytes += static_cast<char>(group >> (bits -= 8));
  }
  return bytes;
}

std::uint32_t number(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<std::uint8_t>(bytes[at + i]);
  return value;
}

/// For the files that we write: three chunks, rows without a filter.
Picture decoded(const std::string& uri) {
  const std::string prefix = "data:image/png;base64,";
  EXPECT_TRUE(uri.starts_with(prefix));
  const std::string bytes = decoded_base64(uri.substr(prefix.size()));
  Picture picture{static_cast<int>(number(bytes, 16)), static_cast<int>(number(bytes, 20)), bytes[25] == 2 ? 3 : 1, {}};
  const std::size_t row = static_cast<std::size_t>(picture.width) * picture.channels;
  std::vector<std::uint8_t> rows((row + 1) * picture.height);
  uLongf size = rows.size();
  EXPECT_EQ(uncompress(rows.data(), &size, reinterpret_cast<const Bytef*>(bytes.data()) + 41, number(bytes, 33)), Z_OK);
  EXPECT_EQ(size, rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (i % (row + 1) != 0) picture.pixels.push_back(rows[i]);
  return picture;
}

TEST(PngDataUri, DecodesToTheSamePixels) {
  std::mt19937 random(1);
  for (const int channels : {1, 3})
    for (const int width : {1, 2, 8, 28, 33})
      for (const int height : {1, 3, 28}) {
        Picture picture{width, height, channels, {}};
        for (int i = 0; i < width * height * channels; ++i) picture.pixels.push_back(random() & 255);
        const Picture again = decoded(png_data_uri(picture));
        EXPECT_EQ(again.width, width);
        EXPECT_EQ(again.height, height);
        EXPECT_EQ(again.channels, channels);
        EXPECT_EQ(again.pixels, picture.pixels);
      }
}

TEST(PngDataUri, APictureIsCompleteOrLeftOut) {
  const auto pixels = [](std::size_t count) { return std::vector<std::uint8_t>(count); };
  EXPECT_TRUE(complete({2, 3, 1, pixels(6)}));
  EXPECT_TRUE(complete({2, 3, 3, pixels(18)}));
  EXPECT_FALSE(complete({2, 3, 1, pixels(5)}));
  EXPECT_FALSE(complete({2, 3, 1, pixels(7)}));
  EXPECT_FALSE(complete({2, 3, 2, pixels(12)}));
  EXPECT_FALSE(complete({0, 3, 1, {}}));
  EXPECT_FALSE(complete({-2, -3, 1, pixels(6)}));
  EXPECT_FALSE(complete({1 << 30, 1 << 30, 3, pixels(6)}));
}

}  // namespace
}  // namespace bie::report::test
