// Convolutions of few channels or outputs a group: sixteen outputs side by side, each with four codes of its own a
// unit; vpdpbusd of unsigned codes with signed weights.
#include <immintrin.h>

#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::avx512 {
namespace {

constexpr int most_pixels = 8;

template <bool v>
struct Constant {
  static constexpr bool value = v;
};
using Yes = Constant<true>;
using No = Constant<false>;

/// Sixteen units of `held` bytes at the lanes asked for, zeros behind them.
template <int held, bool in_order>
__m512i units_at(const char* at, __m512i lanes) {
  __m512i units;
  if constexpr (held == 1)
    units = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  else if constexpr (held == 2)
    units = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  else
    units = _mm512_loadu_si512(at);
  return in_order ? units : _mm512_permutexvar_epi32(lanes, units);
}

template <int held, bool in_order>
void spread_as(const SpreadArgs& a) {
  const char* const codes = static_cast<const char*>(a.codes);
  char* const out = static_cast<char*>(a.out);
  const __m512i lanes = in_order ? _mm512_setzero_si512() : _mm512_loadu_si512(a.lanes);
  if constexpr (held == 4) {
    for (std::int64_t u = 0; u < a.units; ++u) {
      const __m512i from = _mm512_add_epi32(lanes, _mm512_set1_epi32(static_cast<int>(u)));
      for (std::int64_t p = 0; p < a.pixels; ++p)
        _mm512_store_si512(out + (p * a.units + u) * 64, units_at<held, in_order>(codes + p * a.pixel_bytes, from));
    }
    return;
  }
  // Backwards: the codes of the pixels behind move up by what one pixel has.
  for (std::int64_t rest = 0; rest < a.step && rest < a.pixels; ++rest) {
    __m512i unit = _mm512_setzero_si512();
    for (std::int64_t p = (a.pixels - 1 - rest) / a.step * a.step + rest; p >= 0; p -= a.step) {
      unit = _mm512_or_si512(_mm512_slli_epi32(unit, 8 * held),
                             units_at<held, in_order>(codes + p * a.pixel_bytes, lanes));
      _mm512_store_si512(out + p * 64, unit);
    }
  }
}

void spread(const SpreadArgs& a) {
  const bool in_order = a.lanes == nullptr;
  switch (a.held) {
    case 1: return in_order ? spread_as<1, true>(a) : spread_as<1, false>(a);
    case 2: return in_order ? spread_as<2, true>(a) : spread_as<2, false>(a);
    default: return in_order ? spread_as<4, true>(a) : spread_as<4, false>(a);
  }
}

/// P pixels from `first` on of R rows. Taps that both rows read are loaded once.
template <int P, int R>
void pixels(const GroupedTileArgs& a, std::int64_t first) {
  __m512i sum[R][P];
  const __m512i init = _mm512_loadu_si512(a.init);
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) sum[r][p] = init;
  const std::int64_t step = a.step, begin = first * step, apart = R == 1 ? 0 : a.row_taps;
  const char* const panel = static_cast<const char*>(a.panel);
  const auto multiply = [&](std::int64_t from, std::int64_t to, auto upper, auto lower) {
    for (std::int64_t t = from; t < to; ++t) {
      const char* x = static_cast<const char*>(a.taps[t]) + begin;
      __m512i w0 = _mm512_setzero_si512(), w1 = w0;
      if constexpr (upper.value) w0 = _mm512_load_si512(panel + t * 64);
      if constexpr (lower.value) w1 = _mm512_load_si512(panel + (t - apart) * 64);
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        const __m512i units = _mm512_load_si512(x + p * step);
        if constexpr (upper.value) sum[0][p] = _mm512_dpbusd_epi32(sum[0][p], units, w0);
        if constexpr (lower.value) sum[R - 1][p] = _mm512_dpbusd_epi32(sum[R - 1][p], units, w1);
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
  const __m512 scale = _mm512_set1_ps(a.scale);
  const __mmask16 mask = static_cast<__mmask16>(0xffff >> (grouped_lanes - a.columns));
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const std::int64_t at = r * a.count + first + p;
      if (a.y == nullptr)
        _mm512_store_si512(a.acc + at * grouped_lanes, sum[r][p]);
      else
        _mm512_mask_storeu_ps(a.y + at * a.y_stride, mask, _mm512_mul_ps(_mm512_cvtepi32_ps(sum[r][p]), scale));
    }
}

template <int P>
void some_pixels(const GroupedTileArgs& a, std::int64_t first) {
  return a.rows == 1 ? pixels<P, 1>(a, first) : pixels<P, 2>(a, first);
}

/// Parts of nearly equal size.
void run(const GroupedTileArgs& a) {
  const std::int64_t parts = (a.count + most_pixels - 1) / most_pixels;
  for (std::int64_t part = 0, first = 0; part < parts; ++part) {
    const std::int64_t end = a.count * (part + 1) / parts;
    switch (end - first) {
      case 1: some_pixels<1>(a, first); break;
      case 2: some_pixels<2>(a, first); break;
      case 3: some_pixels<3>(a, first); break;
      case 4: some_pixels<4>(a, first); break;
      case 5: some_pixels<5>(a, first); break;
      case 6: some_pixels<6>(a, first); break;
      case 7: some_pixels<7>(a, first); break;
      default: some_pixels<8>(a, first); break;
    }
    first = end;
  }
}

constexpr Tile rows(Code code) {
  return {code,         0,       grouped_lanes, 4,       4, encode, nullptr, nullptr, store, code_planes,
          store_planes, nullptr, nullptr,       nullptr, 0, false,  tail};
}

}  // namespace

const GroupedTile b1xb1_grouped_tile = {rows(Code::u8_b1), spread, run};
const GroupedTile s4xs4_grouped_tile = {rows(Code::u8_s4), spread, run};
const GroupedTile s8xs8_grouped_tile = {rows(Code::u8_s8), spread, run};

}  // namespace bie::kernels::cpu::avx512
