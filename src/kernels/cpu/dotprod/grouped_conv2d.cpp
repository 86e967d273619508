// Convolutions of few channels or outputs a group: sixteen outputs side by side, each with four codes of its own a
// unit; SDOT. Codes of 4 bits and signs are bytes that are not negative.
#include <arm_neon.h>

#include "kernels/cpu/portable/passes.h"
#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::dotprod {
namespace {

constexpr int vectors = grouped_lanes / 4, most_pixels = 3;

const std::int8_t* bytes(const void* at) { return static_cast<const std::int8_t*>(at); }

template <bool v>
struct Constant {
  static constexpr bool value = v;
};
using Yes = Constant<true>;
using No = Constant<false>;

/// P pixels from `first` on of R rows. Taps that both rows read are loaded once.
template <int P, int R>
void pixels(const GroupedTileArgs& a, std::int64_t first) {
  int32x4_t sum[R][P][vectors];
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[r][p][v] = vld1q_s32(a.init + 4 * v);
  const std::int64_t step = a.step, begin = first * step, apart = R == 1 ? 0 : a.row_taps;
  const std::int8_t* const panel = bytes(a.panel);
  const auto multiply = [&](std::int64_t from, std::int64_t to, auto upper, auto lower) {
    for (std::int64_t t = from; t < to; ++t) {
      const std::int8_t *const x = bytes(a.taps[t]) + begin, *const w0 = panel + t * 64,
                               *const w1 = panel + (t - apart) * 64;
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        int8x16_t upper_weights = vdupq_n_s8(0), lower_weights = upper_weights;
        if constexpr (upper.value) upper_weights = vld1q_s8(w0 + 16 * v);
        if constexpr (lower.value) lower_weights = vld1q_s8(w1 + 16 * v);
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) {
          const int8x16_t units = vld1q_s8(x + p * step + 16 * v);
          if constexpr (upper.value) sum[0][p][v] = vdotq_s32(sum[0][p][v], units, upper_weights);
          if constexpr (lower.value) sum[R - 1][p][v] = vdotq_s32(sum[R - 1][p][v], units, lower_weights);
        }
      }
    }
  };
  if constexpr (R == 1) {
    multiply(0, a.tap_count, Yes(), No());
  } else {
    multiply(0, apart, Yes(), No());
    multiply(apart, a.tap_count, Yes(), Yes());
    multiply(a.tap_count, a.tap_count + apart, No(), Yes());
  }
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const std::int64_t at = r * a.count + first + p;
      std::int32_t* const acc = a.acc + at * grouped_lanes;
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) vst1q_s32(acc + 4 * v, sum[r][p][v]);
      if (a.y != nullptr) neon::store({acc, a.columns, a.scale, Dtype::f32, a.y + at * a.y_stride});
    }
}

template <int R>
void some_rows(const GroupedTileArgs& a) {
  std::int64_t first = 0;
  for (; first + most_pixels <= a.count; first += most_pixels) pixels<most_pixels, R>(a, first);
  if (a.count - first == 2) pixels<2, R>(a, first);
  if (a.count - first == 1) pixels<1, R>(a, first);
}

void run(const GroupedTileArgs& a) { return a.rows == 1 ? some_rows<1>(a) : some_rows<2>(a); }

constexpr Tile rows(Code code) {
  return {code,
          0,
          grouped_lanes,
          4,
          4,
          neon::encode,
          nullptr,
          nullptr,
          neon::store,
          neon::code_planes,
          neon::store_planes,
          nullptr,
          nullptr,
          nullptr,
          0,
          false,
          portable::tail};
}

}  // namespace

const GroupedTile b1xb1_grouped_tile = {rows(Code::u8_b1), neon::spread, run};
const GroupedTile s4xs4_grouped_tile = {rows(Code::u8_s4), neon::spread, run};
const GroupedTile s8xs8_grouped_tile = {rows(Code::s8), neon::spread, run};

}  // namespace bie::kernels::cpu::dotprod
