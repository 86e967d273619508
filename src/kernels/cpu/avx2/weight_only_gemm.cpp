// The tile of weight-only products for AVX2: one row x 64 outputs from registers, or up to 24 rows x 64 outputs, for
// which the codes of a part of a group are opened into memory once.
//
// Put under the exponent of 2^(23 - p), the code at bit p of a word is a float whose integer part it is, and one
// subtraction makes it exact.
#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/weight_only/weight_only_rows.h"

namespace bie::kernels::cpu::avx2 {
namespace {

#define BIE_INLINE [[gnu::always_inline]] inline

/// Converts the code at bit p to float. The constants are loaded where they are used: keeping those of a whole loop in
/// registers would spill accumulators.
template <int width, int p>
struct Opening {
  static_assert(p + width <= 23);
  __m256i mask, exponent;
  __m256 middle;

  BIE_INLINE Opening()
      : mask(_mm256_set1_epi32(((1 << width) - 1) << p)),
        exponent(_mm256_set1_epi32((127 + 23 - p) << 23)),
        middle(_mm256_set1_ps(static_cast<float>(1 << (23 - p)) + static_cast<float>(1 << (width - 1)))) {
    asm volatile("" : "+x"(mask), "+x"(exponent), "+x"(middle));
  }
  BIE_INLINE __m256 operator()(__m256i word) const {
    return _mm256_sub_ps(_mm256_castsi256_ps(_mm256_or_si256(_mm256_and_si256(word, mask), exponent)), middle);
  }
};

/// Half a line's lanes, and their upper halves.
struct Words {
  __m256i low, high;
  BIE_INLINE explicit Words(const char* at) {
    low = _mm256_load_si256(reinterpret_cast<const __m256i*>(at));
    high = _mm256_srli_epi32(low, 16);
  }
};

// One row.

/// Row r of outputs 16 v ... and 16 (v + 2) ..., v < 2.
template <int width, int r, int v>
BIE_INLINE void add_pair(const Words& a, const Words& b, __m256 x, __m256 (&sum)[2][4]) {
  const Opening<width, width*(2 * r + v)> open;
  sum[0][v] = _mm256_fmadd_ps(x, open(a.low), sum[0][v]);
  sum[1][v] = _mm256_fmadd_ps(x, open(b.low), sum[1][v]);
  sum[0][v + 2] = _mm256_fmadd_ps(x, open(a.high), sum[0][v + 2]);
  sum[1][v + 2] = _mm256_fmadd_ps(x, open(b.high), sum[1][v + 2]);
}

/// The first `rows` rows of a line.
template <int width, int r = 0>
BIE_INLINE void add_line(const char* at, const float* x, int rows, __m256 (&sum)[2][4]) {
  if constexpr (r < 8 / width) {
    if (r >= rows) return;
    const Words a(at), b(at + 32);
    const __m256 xi = _mm256_broadcast_ss(x + r);
    add_pair<width, r, 0>(a, b, xi, sum);
    add_pair<width, r, 1>(a, b, xi, sum);
    add_line<width, r + 1>(at, x, rows, sum);
  }
}

/// The sums of one group into sum [64].
template <int width>
[[gnu::noinline]] void add_group(const char* at, const float* x, std::int32_t rows, float* to) {
  __m256 sum[2][4];
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h)
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) sum[h][v] = _mm256_setzero_ps();
  constexpr int per_line = 8 / width;
  for (; rows >= per_line; rows -= per_line, at += 64, x += per_line) {
    _mm_prefetch(at + 2048, _MM_HINT_T0);
    add_line<width>(at, x, per_line, sum);
  }
  if (rows > 0) add_line<width>(at, x, rows, sum);
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h)
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) _mm256_store_ps(to + 16 * v + 8 * h, sum[h][v]);
}

// Several rows.

template <int width, int r, int v>
BIE_INLINE void open_pair(const Words& a, const Words& b, float* row) {
  const Opening<width, width*(2 * r + v)> open;
  _mm256_store_ps(row + 16 * v, open(a.low));
  _mm256_store_ps(row + 16 * v + 8, open(b.low));
  _mm256_store_ps(row + 16 * v + 32, open(a.high));
  _mm256_store_ps(row + 16 * v + 40, open(b.high));
}

template <int width, int r = 0>
BIE_INLINE void open_line(const char* at, int rows, float* to) {
  if constexpr (r < 8 / width) {
    if (r >= rows) return;
    const Words a(at), b(at + 32);
    float* const row = to + panel_columns * r;
    open_pair<width, r, 0>(a, b, row);
    open_pair<width, r, 1>(a, b, row);
    open_line<width, r + 1>(at, rows, to);
  }
}

/// `rows` rows of codes, less their middle, into [rows][64].
template <int width>
[[gnu::noinline]] void open_rows(const char* at, int rows, float* to) {
  constexpr int per_line = 8 / width;
  constexpr int ahead = 4096;  // bytes of a panel that are fetched before they are needed
  for (; rows >= per_line; rows -= per_line, at += 64, to += per_line * panel_columns) {
    _mm_prefetch(at + ahead, _MM_HINT_T0);
    open_line<width>(at, per_line, to);
  }
  if (rows > 0) open_line<width>(at, rows, to);
}

/// sum [R][64] += x [count][stride] times codes [count][64].
template <int R>
[[gnu::noinline]] void multiply(const float* codes, const float* x, int stride, int count, float* sums) {
  for (int column = 0; column < panel_columns; column += 16) {
    __m256 sum[R][2];
    float* const to = sums + column;
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i) {
      sum[i][0] = _mm256_load_ps(to + i * panel_columns);
      sum[i][1] = _mm256_load_ps(to + i * panel_columns + 8);
    }
    const float *w = codes + column, *row = x;
    for (int t = 0; t < count; ++t, w += panel_columns, row += stride) {
      const __m256 w0 = _mm256_load_ps(w), w1 = _mm256_load_ps(w + 8);
#pragma GCC unroll 6
      for (int i = 0; i < R; ++i) {
        const __m256 xi = _mm256_broadcast_ss(row + i);
        sum[i][0] = _mm256_fmadd_ps(xi, w0, sum[i][0]);
        sum[i][1] = _mm256_fmadd_ps(xi, w1, sum[i][1]);
      }
    }
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i) {
      _mm256_store_ps(to + i * panel_columns, sum[i][0]);
      _mm256_store_ps(to + i * panel_columns + 8, sum[i][1]);
    }
  }
}

BIE_INLINE __m256 load_floats(const char* at, Dtype dtype, int eighth) {
  if (dtype == Dtype::f32) return _mm256_load_ps(reinterpret_cast<const float*>(at) + 8 * eighth);
  const __m128i halves = _mm_load_si128(reinterpret_cast<const __m128i*>(at) + eighth);
  if (dtype == Dtype::f16) return _mm256_cvtph_ps(halves);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/// Adds one group's contribution to the outputs.
void end_group(const WeightOnlyArgs& a, const WeightGroup& group, const char* numbers, const float* sums,
               const float* sum) {
  const char* const zeros = numbers + row_bytes(a.scale, panel_columns);
  const __m256 middle = _mm256_set1_ps(group.middle);
  for (int eighth = 0; eighth < 8; ++eighth) {
    const __m256 scale = load_floats(numbers, a.scale, eighth);
    __m256 offset = _mm256_setzero_ps();
    if (a.offset == Offset::value) {
      offset = _mm256_fmsub_ps(middle, scale, load_floats(zeros, a.scale, eighth));
    } else if (a.offset == Offset::zero) {
      const __m256i z = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(zeros + 8 * eighth)));
      const __m256 one_less = _mm256_set1_ps(group.middle - 1);
      offset = _mm256_mul_ps(scale, _mm256_sub_ps(one_less, _mm256_cvtepi32_ps(z)));
    }
    for (int i = 0; i < a.rows; ++i) {
      float* const to = a.y + i * a.y_stride + 8 * eighth;
      __m256 all = _mm256_fmadd_ps(_mm256_load_ps(sum + i * panel_columns + 8 * eighth), scale, _mm256_loadu_ps(to));
      if (a.offset != Offset::none) all = _mm256_fmadd_ps(_mm256_broadcast_ss(sums + i), offset, all);
      _mm256_storeu_ps(to, all);
    }
  }
}

struct Loops {
  template <int R>
  static constexpr auto multiply = avx2::multiply<R>;
  template <int width>
  static constexpr auto open_rows = avx2::open_rows<width>;
  template <int width>
  static constexpr auto add_group = avx2::add_group<width>;
  static constexpr auto end_group = avx2::end_group;
};

}  // namespace

const WeightOnlyTile weight_only_tile = {WeightOnlyRows::most, 1, run_weight_only_rows<Loops>};

}  // namespace bie::kernels::cpu::avx2
