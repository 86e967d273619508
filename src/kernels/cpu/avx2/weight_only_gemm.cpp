// The tile of weight-only products for AVX2: 3 rows x 64 outputs, half of a line's lanes at a time.
//
// Put under the exponent of 2^23, a code at the lowest bits of a word is a float, and one subtraction leaves the code.
#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/weight_panels.h"

namespace bie::kernels::cpu::avx2 {
namespace {

#define BIE_INLINE [[gnu::always_inline]] inline

/// What opens a code at the lowest bits, read from memory where it is used: in registers it would push sums out.
struct alignas(32) Opening {
  std::uint32_t mask[8], exponent[8];
  float middle[8];
};

template <int width>
BIE_INLINE Opening opening() {
  Opening o;
  for (int i = 0; i < 8; ++i) {
    o.mask[i] = (1u << width) - 1;
    o.exponent[i] = 0x4b000000;  // 2^23
    o.middle[i] = 8388608.0f + static_cast<float>(1 << (width - 1));
  }
  return o;
}

/// The code of row r and vector v.
template <int width, int r, int v>
BIE_INLINE __m256 open(__m256i word, const Opening& o) {
  constexpr int place = width * (2 * r + v % 2) + 16 * (v / 2);
  const __m256i code = _mm256_and_si256(place == 0 ? word : _mm256_srli_epi32(word, place),
                                        _mm256_load_si256(reinterpret_cast<const __m256i*>(o.mask)));
  const __m256i value = _mm256_or_si256(code, _mm256_load_si256(reinterpret_cast<const __m256i*>(o.exponent)));
  return _mm256_sub_ps(_mm256_castsi256_ps(value), _mm256_load_ps(o.middle));
}

/// Sums of H halves of a line's lanes, R rows and four vectors.
template <int width, int r, int R, int H>
BIE_INLINE void add_row(const __m256i (&word)[H], const Opening& o, const float* x, __m256 (&sum)[H][R][4]) {
#pragma GCC unroll 2
  for (int h = 0; h < H; ++h) {
    const __m256 w[4] = {open<width, r, 0>(word[h], o), open<width, r, 1>(word[h], o), open<width, r, 2>(word[h], o),
                         open<width, r, 3>(word[h], o)};
#pragma GCC unroll 3
    for (int i = 0; i < R; ++i) {
      const __m256 xi = _mm256_broadcast_ss(x + i);
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) sum[h][i][v] = _mm256_fmadd_ps(xi, w[v], sum[h][i][v]);
    }
  }
}

template <int width, int R, int H, int r = 0>
BIE_INLINE void add_line(const __m256i (&word)[H], const Opening& o, const float* x, int rows, __m256 (&sum)[H][R][4]) {
  if constexpr (r < 8 / width) {
    if (r >= rows) return;
    add_row<width, r, R, H>(word, o, x + r * R, sum);
    add_line<width, R, H, r + 1>(word, o, x, rows, sum);
  }
}

BIE_INLINE __m256 load_floats(const char* at, Dtype dtype, int eighth) {
  if (dtype == Dtype::f32) return _mm256_load_ps(reinterpret_cast<const float*>(at) + 8 * eighth);
  const __m128i halves = _mm_load_si128(reinterpret_cast<const __m128i*>(at) + eighth);
  if (dtype == Dtype::f16) return _mm256_cvtph_ps(halves);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/// What a group adds to the outputs of half h.
template <int R>
BIE_INLINE void end_group(const WeightOnlyArgs& a, const WeightGroup& group, const char* numbers, const float* sums,
                          const __m256 (&sum)[R][4], int h) {
  const char* const zeros = numbers + row_bytes(a.scale, panel_columns);
  const __m256 middle = _mm256_set1_ps(group.middle);
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const int eighth = 2 * v + h;
    const __m256 scale = load_floats(numbers, a.scale, eighth);
    __m256 offset = _mm256_setzero_ps();
    if (a.offset == Offset::value) {
      offset = _mm256_fmsub_ps(middle, scale, load_floats(zeros, a.scale, eighth));
    } else if (a.offset == Offset::zero) {
      const __m256i z = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(zeros + 8 * eighth)));
      const __m256 one_less = _mm256_set1_ps(group.middle - 1);
      offset = _mm256_mul_ps(scale, _mm256_sub_ps(one_less, _mm256_cvtepi32_ps(z)));
    }
#pragma GCC unroll 3
    for (int i = 0; i < R; ++i) {
      float* const to = a.y + i * panel_columns + 8 * eighth;
      __m256 all = _mm256_fmadd_ps(sum[i][v], scale, _mm256_load_ps(to));
      if (a.offset != Offset::none) all = _mm256_fmadd_ps(_mm256_broadcast_ss(sums + i), offset, all);
      _mm256_store_ps(to, all);
    }
  }
}

template <int H>
BIE_INLINE void load_line(const char* at, __m256i (&word)[H]) {
#pragma GCC unroll 2
  for (int h = 0; h < H; ++h) word[h] = _mm256_load_si256(reinterpret_cast<const __m256i*>(at + 32 * h));
}

/// H halves, from `first`, of one group.
template <int width, int R, int H>
BIE_INLINE void add_halves(const WeightOnlyArgs& a, const WeightGroup& group, const float* x, const float* sums,
                           const char* panel, std::int64_t bytes_of_numbers, int first) {
  __m256 sum[H][R][4];
#pragma GCC unroll 2
  for (int h = 0; h < H; ++h)
#pragma GCC unroll 3
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) sum[h][i][v] = _mm256_setzero_ps();
  constexpr int per_line = 8 / width;
  const char* at = panel + bytes_of_numbers + 32 * first;
  __m256i word[H];
  const Opening numbers = opening<width>(), *o = &numbers;
  asm("" : "+r"(o) : : "memory");
  std::int32_t left = group.rows;
  for (; left >= per_line; left -= per_line, at += 64, x += per_line * R) {
    load_line<H>(at, word);
    if (R == 1) _mm_prefetch(at + 2048, _MM_HINT_T0);
    if (R == 3) asm volatile("" : : : "memory");
    add_line<width, R, H>(word, *o, x, per_line, sum);
  }
  if (left > 0) {
    load_line<H>(at, word);
    add_line<width, R, H>(word, *o, x, left, sum);
  }
#pragma GCC unroll 2
  for (int h = 0; h < H; ++h) end_group<R>(a, group, panel, sums, sum[h], first + h);
}

template <int width, int R>
[[gnu::noinline]] void add_group(const WeightOnlyArgs& a, const WeightGroup& group, const float* x, const float* sums,
                                 const char* panel, std::int64_t numbers) {
  if constexpr (R == 1) {
    add_halves<width, R, 2>(a, group, x, sums, panel, numbers, 0);
  } else {
    for (int h = 0; h < 2; ++h) add_halves<width, R, 1>(a, group, x, sums, panel, numbers, h);
  }
}

template <int R>
void tile(const WeightOnlyArgs& a) {
  for (int i = 0; i < R * panel_columns; i += 8) _mm256_store_ps(a.y + i, _mm256_setzero_ps());
  const std::int64_t numbers = row_bytes(a.scale, panel_columns) + zero_bytes(a.offset, a.scale);
  const float *x = a.x, *sums = a.sums;
  const char* panel = a.panel;
  for (std::int64_t g = 0; g < a.group_count; ++g) {
    const WeightGroup& group = a.groups[g];
    switch (group.width) {
      case 1: add_group<1, R>(a, group, x, sums, panel, numbers); break;
      case 2: add_group<2, R>(a, group, x, sums, panel, numbers); break;
      case 4: add_group<4, R>(a, group, x, sums, panel, numbers); break;
      default: add_group<8, R>(a, group, x, sums, panel, numbers); break;
    }
    x += R * group.rows;
    if (sums != nullptr) sums += R;
    panel += numbers + 64 * group.lines;
  }
}

void run(const WeightOnlyArgs& a) {
  switch (a.rows) {
    case 1: return tile<1>(a);
    case 2: return tile<2>(a);
    default: return tile<3>(a);
  }
}

}  // namespace

const WeightOnlyTile weight_only_tile = {3, 1, run};

}  // namespace bie::kernels::cpu::avx2
