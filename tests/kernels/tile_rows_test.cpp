// Arguments that the drivers pass to a tile of any size: pointers to rows, and their stride where they are evenly
// spaced.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/conv2d/conv2d_driver.h"
#include "kernels/cpu/gemm/gemm_driver.h"
#include "tests/kernels/every_kernel.h"

namespace bie::kernels::test {
namespace {

struct Seen {
  std::int64_t tiles = 0, spaced = 0, rows = 0;
  bool right = true;  ///< a stride that was given led to every row
} seen;

bool encode(const cpu::EncodeArgs& a) {
  for (std::int64_t row = 0; row < a.rows; ++row)
    std::fill_n(static_cast<char*>(a.out) + row * a.out_stride, a.row_bytes, char{0});
  return true;
}

void look(const cpu::TileArgs& a) {
  ++seen.tiles;
  for (int r = 0; r < a.row_count; ++r) seen.rows += a.kept >> r & 1;
  if (a.row_stride == 0) return;
  ++seen.spaced;
  for (std::int64_t tap = 0; tap < a.taps; ++tap)
    for (int r = 0; r < a.row_count; ++r) {
      const char* first = static_cast<const char*>(a.rows[0]) + a.tap_offsets[tap];
      seen.right = seen.right && static_cast<const char*>(a.rows[r]) + a.tap_offsets[tap] == first + r * a.row_stride;
    }
}

/// Computes nothing: it looks at its rows.
template <int mr, int nr>
cpu::Tile tile() {
  cpu::Tile made = {cpu::Code::u8_s8, mr, nr, 4, 4, encode, nullptr, look, [](const cpu::StoreArgs&) {}};
  made.strides = true;
  return made;
}

template <int mr, int nr>
void expect_gemm_rows(const GemmShape& s) {
  const cpu::Tile t = tile<mr, nr>();
  const cpu::PanelLayout layout(t, s.n, s.k, 1);
  const PackedMemory panels(layout.bytes());
  const std::vector<float> x(static_cast<std::size_t>(s.m * s.k));
  std::vector<float> y(static_cast<std::size_t>(s.m * s.n));
  seen = {};
  EXPECT_EQ(cpu::run_gemm(t, cpu::int8_width, s, {x.data(), Dtype::f32, 4 * s.k, nullptr, 1}, panels.get(),
                          {y.data(), Dtype::f32, 4 * s.n, 1}, serial()),
            Status::ok);
  EXPECT_TRUE(seen.right);
  EXPECT_EQ(seen.spaced, seen.tiles);
  EXPECT_EQ(seen.rows, s.m * layout.panels);
}

TEST(TileRows, RowsOfAMatrixAreSpacedByTheirCodes) {
  expect_gemm_rows<6, 64>({70, 100, 33});
  expect_gemm_rows<32, 64>({70, 100, 33});  // 2048 results
  expect_gemm_rows<32, 16>({1, 5, 7});
}

template <int mr, int nr>
void expect_pixel_rows(const Conv2dShape& s, ImageLayout layout) {
  const cpu::Tile t = tile<mr, nr>();
  const cpu::PanelLayout panel_layout = cpu::conv2d_layout(t, s);
  const PackedMemory panels(panel_layout.bytes());
  const std::vector<float> x(static_cast<std::size_t>(s.batch * s.in_c * s.in_h * s.in_w));
  std::vector<float> y(static_cast<std::size_t>(s.batch * s.out_c * s.out_h() * s.out_w()));
  seen = {};
  EXPECT_EQ(cpu::run_conv2d(t, cpu::int8_width, s, {x.data(), Dtype::f32, layout, nullptr, 1}, panels.get(),
                            {y.data(), Dtype::f32, layout, 1}, serial()),
            Status::ok);
  EXPECT_TRUE(seen.right);
  EXPECT_EQ(seen.rows, s.batch * s.out_h() * s.out_w() * panel_layout.panels);
}

TEST(TileRows, PixelsOfALineAreSpacedByTheirStep) {
  for (const ImageLayout layout : {ImageLayout::nchw, ImageLayout::nhwc})
    for (const std::int64_t stride : {1, 2}) {
      const Conv2dShape s{2, 3, 9, 13, 5, 3, 3, stride, stride, 1, 1};
      expect_pixel_rows<4, 16>(s, layout);
      EXPECT_GT(seen.spaced, 0);
      EXPECT_EQ(seen.spaced < seen.tiles, stride == 2) << "tiles that cross the end of a line have no stride";
      expect_pixel_rows<32, 64>(s, layout);  // more pixels than a line has
      EXPECT_EQ(seen.spaced < seen.tiles, stride == 2);
    }
}

}  // namespace
}  // namespace bie::kernels::test
