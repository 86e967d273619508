// Convolutions of few channels or outputs a group: sixteen outputs side by side, each with four codes of its own a
// unit; vpdpbusd of unsigned codes with signed weights.
#include <immintrin.h>

#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::avx512 {
namespace {

constexpr int most_pixels = 8;

/// Sixteen units of `held` codes at the lanes asked for, zeros behind them.
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

template <int P>
void pixels(const GroupedTileArgs& a, std::int64_t first) {
  __m512i sum[P];
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) sum[p] = _mm512_loadu_si512(a.init);
  const std::int64_t step = a.step, begin = first * step;
  const char* w = static_cast<const char*>(a.panel);
  for (std::int64_t t = 0; t < a.tap_count; ++t, w += 64) {
    const __m512i weights = _mm512_load_si512(w);
    const char* x = static_cast<const char*>(a.taps[t]) + begin;
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) sum[p] = _mm512_dpbusd_epi32(sum[p], _mm512_load_si512(x + p * step), weights);
  }
  if (a.y == nullptr) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) _mm512_store_si512(a.acc + (first + p) * grouped_lanes, sum[p]);
    return;
  }
  const __m512 scale = _mm512_set1_ps(a.scale);
  const __mmask16 mask = static_cast<__mmask16>(0xffff >> (grouped_lanes - a.columns));
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p)
    _mm512_mask_storeu_ps(a.y + (first + p) * a.y_stride, mask, _mm512_mul_ps(_mm512_cvtepi32_ps(sum[p]), scale));
}

void run(const GroupedTileArgs& a) {
  std::int64_t done = 0;
  for (; done + most_pixels <= a.count; done += most_pixels) pixels<most_pixels>(a, done);
  switch (a.count - done) {
    case 1: return pixels<1>(a, done);
    case 2: return pixels<2>(a, done);
    case 3: return pixels<3>(a, done);
    case 4: return pixels<4>(a, done);
    case 5: return pixels<5>(a, done);
    case 6: return pixels<6>(a, done);
    case 7: return pixels<7>(a, done);
    default: return;
  }
}

constexpr Tile rows(Code code) {
  return {code,  0,           grouped_lanes, 4,       4,       encode,  nullptr, nullptr,
          store, code_planes, store_planes,  nullptr, nullptr, nullptr, 0,       false,
          tail};
}

}  // namespace

const GroupedTile b1xb1_grouped_tile = {rows(Code::u8_b1), spread, run};
const GroupedTile s4xs4_grouped_tile = {rows(Code::u8_s4), spread, run};
const GroupedTile s8xs8_grouped_tile = {rows(Code::u8_s8), spread, run};

}  // namespace bie::kernels::cpu::avx512
