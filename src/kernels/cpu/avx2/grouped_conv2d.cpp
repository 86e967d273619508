// Convolutions of few channels or outputs a group: sixteen outputs side by side, each with a unit of codes of its own.
// Units of bytes are unsigned codes of at most 15, whose products with codes of 4 bits and signs vpmaddubsw adds in
// pairs without saturation; units of 8-bit codes are two int16.
#include <immintrin.h>

#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::avx2 {
namespace {

constexpr int most_pixels = 4;

/// Eight units of `held` bytes, zeros behind them.
template <int held>
__m256i eight_units(const char* at) {
  if constexpr (held == 1)
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
  else if constexpr (held == 2)
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  else
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

/// Units of the lanes asked for, which are those of half `half` where they stand in order.
template <int held, bool in_order>
__m256i units_at(const char* at, __m256i lanes, int half) {
  if constexpr (in_order) return eight_units<held>(at + 8 * held * half);
  const __m256i low = _mm256_permutevar8x32_epi32(eight_units<held>(at), lanes);
  const __m256i high = _mm256_permutevar8x32_epi32(eight_units<held>(at + 8 * held), lanes);
  return _mm256_blendv_epi8(low, high, _mm256_cmpgt_epi32(lanes, _mm256_set1_epi32(7)));
}

template <int held, bool in_order>
void spread_as(const SpreadArgs& a) {
  const char* const codes = static_cast<const char*>(a.codes);
  char* const out = static_cast<char*>(a.out);
  for (int half = 0; half < 2; ++half) {
    __m256i lanes = _mm256_setzero_si256();
    if constexpr (!in_order) lanes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a.lanes) + half);
    const auto put = [&](std::int64_t at, __m256i units) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(out + at * 64) + half, units);
    };
    if constexpr (held == 4) {
      for (std::int64_t u = 0; u < a.units; ++u) {
        const __m256i own = _mm256_add_epi32(lanes, _mm256_set1_epi32(static_cast<int>(u)));
        for (std::int64_t p = 0; p < a.pixels; ++p)
          put(p * a.units + u, units_at<held, in_order>(codes + p * a.pixel_bytes, own, half));
      }
      continue;
    }
    // Backwards: the codes of the pixels behind move up by what one pixel has.
    for (std::int64_t rest = 0; rest < a.step && rest < a.pixels; ++rest) {
      __m256i unit = _mm256_setzero_si256();
      for (std::int64_t p = (a.pixels - 1 - rest) / a.step * a.step + rest; p >= 0; p -= a.step) {
        unit = _mm256_or_si256(_mm256_slli_epi32(unit, 8 * held),
                               units_at<held, in_order>(codes + p * a.pixel_bytes, lanes, half));
        put(p, unit);
      }
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

struct Bytes {
  static __m256i dot(__m256i units, __m256i weights) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(units, weights), _mm256_set1_epi16(1));
  }
};

struct Words {
  static __m256i dot(__m256i units, __m256i weights) { return _mm256_madd_epi16(units, weights); }
};

/// P pixels from `first` on of a row.
template <class Units, int P>
void pixels(const GroupedTileArgs& a, int row, std::int64_t first) {
  __m256i sum[P][2];
  const auto* const init = reinterpret_cast<const __m256i*>(a.init);
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) sum[p][half] = _mm256_loadu_si256(init + half);
  const auto* w = static_cast<const __m256i*>(a.panel);
  const void* const* const taps = a.taps + row * a.row_taps;
  for (std::int64_t t = 0; t < a.tap_count; ++t, w += 2) {
    const char* const x = static_cast<const char*>(taps[t]) + first * a.step;
    const __m256i weights[2] = {_mm256_load_si256(w), _mm256_load_si256(w + 1)};
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p)
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m256i units = _mm256_load_si256(reinterpret_cast<const __m256i*>(x + p * a.step) + half);
        sum[p][half] = _mm256_add_epi32(sum[p][half], Units::dot(units, weights[half]));
      }
  }
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
    const std::int64_t at = row * a.count + first + p;
    std::int32_t* const acc = a.acc + at * grouped_lanes;
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) _mm256_store_si256(reinterpret_cast<__m256i*>(acc) + half, sum[p][half]);
    if (a.y != nullptr) store({acc, a.columns, a.scale, Dtype::f32, a.y + at * a.y_stride});
  }
}

template <class Units>
void run(const GroupedTileArgs& a) {
  for (int row = 0; row < a.rows; ++row) {
    std::int64_t first = 0;
    for (; first + most_pixels <= a.count; first += most_pixels) pixels<Units, most_pixels>(a, row, first);
    switch (a.count - first) {
      case 1: pixels<Units, 1>(a, row, first); break;
      case 2: pixels<Units, 2>(a, row, first); break;
      case 3: pixels<Units, 3>(a, row, first); break;
      default: break;
    }
  }
}

constexpr Tile rows(Code code) { return {code, 0, grouped_lanes, 4, 4, encode, nullptr, nullptr, store}; }

}  // namespace

const GroupedTile b1xb1_grouped_tile = {rows(Code::u8_b1), spread, run<Bytes>};
const GroupedTile s4xs4_grouped_tile = {rows(Code::u8_s4), spread, run<Bytes>};
const GroupedTile s8xs8_grouped_tile = {rows(Code::s16_s8), spread, run<Words>};

}  // namespace bie::kernels::cpu::avx2
