// The tile of weight-only products for AVX-512: 6 rows x 64 outputs, or one row x four panels.
//
// A code becomes a float by one permutation of a table: vpermps reads the low 4 bits of a lane, vpermw with every lower
// half masked out reads bits 16 ... 20 and leaves the float's upper half. With one row, the permutations and their
// shifts would be the bottleneck, so a quarter of the codes goes another way: put under the exponent of 2^(23 - p), the
// code at bit p of a word is a float whose integer part it is, and one subtraction makes it exact.
#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/weight_only/weight_panels.h"

namespace bie::kernels::cpu::avx512bw {
namespace {

#define BIE_INLINE [[gnu::always_inline]] inline

template <int width>
struct Tables {
  __m512i floats;  ///< of the low bits of a lane
  __m512i halves;  ///< the upper halves of the same floats
  __mmask32 upper;

  BIE_INLINE Tables() {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i codes = _mm512_and_si512(lanes, _mm512_set1_epi32((1 << width) - 1));
    floats = _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_sub_epi32(codes, _mm512_set1_epi32(1 << (width - 1)))));
    const __m256i sixteen = _mm512_cvtepi32_epi16(_mm512_srli_epi32(floats, 16));
    halves = _mm512_broadcast_i64x4(sixteen);
    upper = 0xaaaaaaaa;
    asm("" : "+Yk"(upper));  // not known to the compiler, which would make a permutation and an AND of it
  }
  BIE_INLINE __m512 low(__m512i word) const { return _mm512_castsi512_ps(_mm512_permutexvar_epi32(word, floats)); }
  BIE_INLINE __m512 high(__m512i word) const {
    return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(upper, word, halves));
  }
};

/// The code at bit p as a float.
template <int width, int p>
BIE_INLINE __m512 under_exponent(__m512i word) {
  static_assert(p + width <= 23);
  const __m512i mask = _mm512_set1_epi32(((1 << width) - 1) << p), exponent = _mm512_set1_epi32((127 + 23 - p) << 23);
  const __m512 value = _mm512_castsi512_ps(_mm512_ternarylogic_epi32(word, mask, exponent, 0xea));  // (a & b) | c
  return _mm512_sub_ps(value, _mm512_set1_ps(static_cast<float>(1 << (23 - p)) + static_cast<float>(1 << (width - 1))));
}

/// The 64 codes of row r of a line. `even` says whether the load of the two ways is to be even.
template <int width, int r, bool even>
BIE_INLINE void open(const Tables<width>& t, __m512i word, __m512 (&w)[4]) {
  constexpr int first = width * 2 * r, second = first + width;
  if constexpr (width == 8) {
    const __m512i upper = _mm512_srli_epi32(word, 16);
    w[0] = under_exponent<8, 0>(word);
    w[1] = under_exponent<8, 8>(word);
    w[2] = under_exponent<8, 0>(upper);
    w[3] = under_exponent<8, 8>(upper);
  } else {
    const __m512i b = _mm512_srli_epi32(word, second);
    w[1] = t.low(b);
    w[3] = t.high(b);
    if constexpr (even && r % 2 == 1) {
      w[0] = under_exponent<width, first>(word);
      w[2] = under_exponent<width, 16 - width>(b);
    } else {
      const __m512i a = r == 0 ? word : _mm512_srli_epi32(word, first);
      w[0] = t.low(a);
      w[2] = t.high(a);
    }
  }
}

template <int width, int r, int R, int P>
BIE_INLINE void add_row(const Tables<width>& t, const __m512i (&word)[P], const float* x, __m512 (&sum)[P][R][4]) {
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
    __m512 w[4];
    open<width, r, R == 1>(t, word[p], w);
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i) {
      const __m512 xi = _mm512_set1_ps(x[i]);
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) sum[p][i][v] = _mm512_fmadd_ps(xi, w[v], sum[p][i][v]);
    }
  }
}

/// The first `rows` rows of a line.
template <int width, int R, int P, int r = 0>
BIE_INLINE void add_line(const Tables<width>& t, const __m512i (&word)[P], const float* x, int rows,
                         __m512 (&sum)[P][R][4]) {
  if constexpr (r < 8 / width) {
    if (r >= rows) return;
    if constexpr (R == 1 && r + 1 < 8 / width) {
      if (r + 1 < rows) {
        const __m512 x0 = _mm512_set1_ps(x[r]), x1 = _mm512_set1_ps(x[r + 1]);
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) {
          __m512 w[2][4];
          open<width, r, true>(t, word[p], w[0]);
          open<width, r + 1, true>(t, word[p], w[1]);
#pragma GCC unroll 4
          for (int v = 0; v < 4; ++v) sum[p][0][v] = _mm512_fmadd_ps(x0, w[0][v], sum[p][0][v]);
#pragma GCC unroll 4
          for (int v = 0; v < 4; ++v) sum[p][0][v] = _mm512_fmadd_ps(x1, w[1][v], sum[p][0][v]);
        }
        add_line<width, R, P, r + 2>(t, word, x, rows, sum);
        return;
      }
    }
    add_row<width, r, R, P>(t, word, x + r * R, sum);
    add_line<width, R, P, r + 1>(t, word, x, rows, sum);
  }
}

BIE_INLINE __m512 load_floats(const char* at, Dtype dtype, int v) {
  if (dtype == Dtype::f32) return _mm512_load_ps(at + 64 * v);
  const __m256i halves = _mm256_load_si256(reinterpret_cast<const __m256i*>(at + 32 * v));
  if (dtype == Dtype::f16) return _mm512_cvtph_ps(halves);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/// Adds one group's contribution to the outputs.
template <int R>
BIE_INLINE void end_group(const WeightOnlyArgs& a, const WeightGroup& group, const char* numbers, const float* sums,
                          const __m512 (&sum)[R][4], float* y, std::int64_t stride) {
  const char* const zeros = numbers + row_bytes(a.scale, panel_columns);
  const __m512 middle = _mm512_set1_ps(group.middle);
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const __m512 scale = load_floats(numbers, a.scale, v);
    __m512 offset = _mm512_setzero_ps();
    if (a.offset == Offset::value) {
      offset = _mm512_fmsub_ps(middle, scale, load_floats(zeros, a.scale, v));
    } else if (a.offset == Offset::zero) {
      const __m512i z = _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(zeros + 16 * v)));
      const __m512 one_less = _mm512_set1_ps(group.middle - 1);
      offset = _mm512_mul_ps(scale, _mm512_sub_ps(one_less, _mm512_cvtepi32_ps(z)));
    }
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i) {
      float* const to = y + i * stride + 16 * v;
      __m512 all = _mm512_fmadd_ps(sum[i][v], scale, _mm512_loadu_ps(to));
      if (a.offset != Offset::none) all = _mm512_fmadd_ps(_mm512_set1_ps(sums[i]), offset, all);
      _mm512_storeu_ps(to, all);
    }
  }
}

/// One group of P panels.
template <int width, int R, int P>
void add_group(const WeightOnlyArgs& a, const WeightGroup& group, const float* x, const float* sums, const char* panel,
               std::int64_t bytes_of_numbers) {
  constexpr std::int64_t distance = 4096;
  const char* const end = a.panel + a.panel_bytes;
  const Tables<width> tables;
  __m512 sum[P][R][4];
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) sum[p][i][v] = _mm512_setzero_ps();
  constexpr int per_line = 8 / width;
  const char* at = panel + bytes_of_numbers;
  __m512i word[P];
  std::int32_t left = group.rows;
  for (; left >= per_line; left -= per_line, at += 64, x += per_line * R) {
    // Beyond the end of a panel lies the next panel, which this call reads too: prefetch the panels of the next call
    // instead.
    const std::int64_t ahead = at + distance < end ? distance : distance + (P - 1) * a.panel_bytes;
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      word[p] = _mm512_load_si512(at + p * a.panel_bytes);
      _mm_prefetch(at + p * a.panel_bytes + ahead, _MM_HINT_T0);
    }
    add_line<width, R, P>(tables, word, x, per_line, sum);
  }
  if (left > 0) {
    for (int p = 0; p < P; ++p) word[p] = _mm512_load_si512(at + p * a.panel_bytes);
    add_line<width, R, P>(tables, word, x, left, sum);
  }
  for (int p = 0; p < P; ++p)
    end_group<R>(a, group, panel + p * a.panel_bytes, sums, sum[p], a.y + p * panel_columns, a.y_stride);
}

template <int R, int P>
void tile(const WeightOnlyArgs& a) {
  for (int i = 0; i < R; ++i)
    for (int j = 0; j < P * panel_columns; j += 16) _mm512_storeu_ps(a.y + i * a.y_stride + j, _mm512_setzero_ps());
  const std::int64_t numbers = row_bytes(a.scale, panel_columns) + zero_bytes(a.offset, a.scale);
  const float *x = a.x, *sums = a.sums;
  const char* panel = a.panel;
  for (std::int64_t g = 0; g < a.group_count; ++g) {
    const WeightGroup& group = a.groups[g];
    switch (group.width) {
      case 1: add_group<1, R, P>(a, group, x, sums, panel, numbers); break;
      case 2: add_group<2, R, P>(a, group, x, sums, panel, numbers); break;
      case 4: add_group<4, R, P>(a, group, x, sums, panel, numbers); break;
      default: add_group<8, R, P>(a, group, x, sums, panel, numbers); break;
    }
    x += R * group.rows;
    if (sums != nullptr) sums += R;
    panel += numbers + 64 * group.lines;
  }
}

void run(const WeightOnlyArgs& a) {
  switch (a.rows) {
    case 1:
      switch (a.panels) {
        case 1: return tile<1, 1>(a);
        case 2: return tile<1, 2>(a);
        case 3: return tile<1, 3>(a);
        default: return tile<1, 4>(a);
      }
    case 2: return tile<2, 1>(a);
    case 3: return tile<3, 1>(a);
    case 4: return tile<4, 1>(a);
    case 5: return tile<5, 1>(a);
    default: return tile<6, 1>(a);
  }
}

}  // namespace

const WeightOnlyTile weight_only_tile = {6, 4, run};

}  // namespace bie::kernels::cpu::avx512bw
