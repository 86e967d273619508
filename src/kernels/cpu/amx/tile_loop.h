// The loop that the AMX tiles share: 32 rows of activation bytes meet 32 of a panel's 64 outputs, then the other 32.
// Four tiles are sums, two hold activations and two weights. Private to this folder: everything sits in an unnamed
// namespace.
//
// The panels are those of the AVX-512 tiles; nibbles are opened to bytes once per block of rows. A thread configures
// its tiles for the length of a task. Rows are loaded by stride: in a convolution a line of windows continues across
// the padding into the next line, so that rows are evenly spaced, and the windows in between have no result.
// tests/kernels/amx_emulated_test.cpp runs the same loop over emulated tiles where the CPU has none.
#pragma once

#include "kernels/cpu/amx/tiles.h"
#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::BIE_AMX_SET {

extern const Tile s8xs8_tile, s4xs4_tile;

namespace {

constexpr int tile_rows = 32, tile_cols = 64;
constexpr int step_units = 16;                        // units of four codes in a row of a tile
constexpr std::int64_t panel_stride = 4 * tile_cols;  // bytes of a unit of all outputs

/// 16 rows of activations at one tap. Rows that are evenly spaced are loaded where they are, others are copied.
class ActivationRows {
 public:
  /// stride: bytes from row to row, 0 where they may be unevenly spaced.
  ActivationRows(const void* const* rows, std::int64_t offset, int count, std::int64_t stride)
      : rows_(rows), offset_(offset), count_(count), even_(stride != 0 && count == 16), stride_(stride) {
    if (stride != 0 || count < 16) return;
    stride = at(1) - at(0);
    for (int r = 2; r < 16; ++r)
      if (at(r) - at(r - 1) != stride) return;
    stride_ = stride;
    even_ = true;
  }
  /// Bytes [byte, byte + 64) of each row; bytes behind a row's last code are multiplied with weights of 0.
  template <int T>
  [[gnu::always_inline]] void load(std::int64_t byte, char* copy) const {
    if (even_) {
      load_tile<T>(at(0) + byte, stride_);
      return;
    }
    for (int r = 0; r < count_; ++r) _mm512_store_si512(copy + 64 * r, _mm512_loadu_si512(at(r) + byte));
    load_tile<T>(copy, 64);
  }

 private:
  const char* at(int r) const { return static_cast<const char*>(rows_[r]) + offset_; }

  const void* const* rows_;
  std::int64_t offset_;
  int count_;
  bool even_;
  std::int64_t stride_;
};

/// Stores the sums of 16 R rows and 16 C outputs in acc. `units` of four codes at each tap.
template <int R, int C>
void multiply(const TileArgs& a, std::int64_t units, const char* panel, std::int32_t* acc) {
  alignas(64) char copies[R][1024], last[C][1024];
  const int counts[2] = {a.row_count < 16 ? a.row_count : 16, a.row_count - 16};
  zero_tile<0>();
  if constexpr (C > 1) zero_tile<1>();
  if constexpr (R > 1) zero_tile<2>();
  if constexpr (R > 1 && C > 1) zero_tile<3>();
  const std::int64_t whole = units / step_units * step_units;
  for (std::int64_t t = 0; t < a.taps; ++t, panel += units * panel_stride) {
    const ActivationRows upper(a.rows, a.tap_offsets[t], counts[0], a.row_stride);
    const ActivationRows lower(a.rows + (R > 1 ? 16 : 0), a.tap_offsets[t], counts[R - 1], a.row_stride);
    const auto step = [&](std::int64_t u, const char* weights, std::int64_t stride, std::int64_t next)
        __attribute__((always_inline)) {
      load_tile<6>(weights, stride);
      upper.load<4>(4 * u, copies[0]);
      dot<0, 4, 6>();
      if constexpr (C > 1) {
        load_tile<7>(weights + next, stride);
        dot<1, 4, 7>();
      }
      if constexpr (R > 1) {
        lower.load<5>(4 * u, copies[R - 1]);
        dot<2, 5, 6>();
        if constexpr (C > 1) dot<3, 5, 7>();
      }
    };
    for (std::int64_t u = 0; u < whole; u += step_units) step(u, panel + u * panel_stride, panel_stride, 64);
    if (whole == units) continue;
    for (int c = 0; c < C; ++c)
      for (int r = 0; r < step_units; ++r)
        _mm512_store_si512(last[c] + 64 * r, whole + r < units
                                                 ? _mm512_load_si512(panel + (whole + r) * panel_stride + 64 * c)
                                                 : _mm512_setzero_si512());
    step(whole, last[0], 64, 1024);
  }
  store_tile<0>(acc, panel_stride);
  if constexpr (C > 1) store_tile<1>(acc + 16, panel_stride);
  if constexpr (R > 1) store_tile<2>(acc + 16 * tile_cols, panel_stride);
  if constexpr (R > 1 && C > 1) store_tile<3>(acc + 16 * tile_cols + 16, panel_stride);
}

/// Epilogue: stores the accumulators as int32, as scaled floats or as signs.
template <class Product>
void finish(const TileArgs& a, int columns) {
  const int vectors = (columns + 15) / 16;
  const __mmask16 last = static_cast<__mmask16>(0xffff >> (16 * vectors - columns));
  const __m512 scale = _mm512_set1_ps(a.scale);
  const bool streamed = a.streamed && (reinterpret_cast<std::uintptr_t>(a.y) | 4 * a.y_stride) % 64 == 0;
  int to = 0;  // the row of a result
  for (int r = 0; r < a.row_count; ++r) {
    if ((a.kept >> r & 1) == 0) continue;
    const std::int32_t* const row = a.acc + r * tile_cols;
    std::uint64_t bits = 0;
    for (int v = 0; v < vectors; ++v) {
      const __m512i sum = Product::finish(_mm512_load_si512(row + 16 * v), _mm512_load_si512(a.init + 16 * v));
      const __mmask16 here = v + 1 < vectors ? __mmask16(0xffff) : last;
      if (a.y == nullptr && a.signs == nullptr) {
        _mm512_store_si512(a.acc + to * tile_cols + 16 * v, sum);
        continue;
      }
      __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale);
      if (a.signs == nullptr) {
        float* const out = a.y + to * a.y_stride + 16 * v;
        streamed&& here == 0xffff ? _mm512_stream_ps(out, y) : _mm512_mask_storeu_ps(out, here, y);
        continue;
      }
      if (a.bias != nullptr) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(here, a.bias + 16 * v));
      bits |= std::uint64_t{_mm512_mask_cmp_ps_mask(here, y, _mm512_setzero_ps(), _CMP_GE_OQ)} << (16 * v);
    }
    if (a.signs != nullptr) a.signs[to] = bits;
    ++to;
  }
}

/// Product: unit_fours, groups of four codes in a weight unit; finish(sum, init).
template <class Product>
void run_tile(const TileArgs& given) {
  TileArgs a = given;
  const std::int64_t units = a.units * Product::unit_fours;
  for (;; --a.panels) {
    for (int c = 0; c < a.col_count; c += 32) {
      const char* const panel = static_cast<const char*>(a.panel) + 4 * c;
      const bool two = a.col_count - c > 16;
      if (a.row_count > 16)
        two ? multiply<2, 2>(a, units, panel, a.acc + c) : multiply<2, 1>(a, units, panel, a.acc + c);
      else
        two ? multiply<1, 2>(a, units, panel, a.acc + c) : multiply<1, 1>(a, units, panel, a.acc + c);
    }
    finish<Product>(a, a.col_count);
    if (a.panels == 1) return;
    a.panel = static_cast<const char*>(a.panel) + a.panel_bytes;
    a.init += a.panel_bytes / 4;
    a.y += tile_cols;
  }
}

}  // namespace
}  // namespace bie::kernels::cpu::BIE_AMX_SET
