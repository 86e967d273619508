// mixed tile: float32 multiply-adds of 12 rows and 32 columns. a: [k][12]; b: [k][32], float32.
#include "kernels/cpu/gemm/mixed_gemm.h"

#include <immintrin.h>

#include <utility>

namespace bie::kernels::cpu::avx512bw {
namespace {

constexpr int tile_rows = 12, tile_columns = 32;

struct Bf16 {
  std::uint16_t bits;
};

__m512 values(const Bf16* a, __mmask16 here) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(here, a)), 16));
}
float value(float x) { return x; }
float value(Bf16 x) { return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(x.bits) << 16))); }

__m512 values(const float* b, __mmask16 here) { return _mm512_maskz_loadu_ps(here, b); }
__m512 values(const std::int8_t* b, __mmask16 here) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(here, b)));
}

template <class T>
void split(const MixedSplitArgs& a) {
  const T* const from = static_cast<const T*>(a.a);
  float* out = static_cast<float*>(a.out);
  if (a.row == 1) {
    const auto here = static_cast<__mmask16>((1 << a.rows) - 1), all = static_cast<__mmask16>((1 << tile_rows) - 1);
    for (std::int64_t l = 0; l < a.k; ++l)
      _mm512_mask_storeu_ps(out + l * tile_rows, all, values(from + l * a.column, here));
    return;
  }
  for (std::int64_t l = 0; l < a.k; ++l)
    for (int r = 0; r < tile_rows; ++r) *out++ = r < a.rows ? value(from[r * a.row + l]) : 0.0f;
}

template <class T>
void open_as(const MixedOpenArgs& a) {
  const T* b = static_cast<const T*>(a.b);
  float* out = static_cast<float*>(a.out);
  const auto low = static_cast<__mmask16>(a.columns >= 16 ? 0xffff : (1 << a.columns) - 1);
  const auto high = static_cast<__mmask16>(a.columns <= 16 ? 0 : 0xffff >> (32 - a.columns));
  for (std::int64_t l = 0; l < a.k; ++l, b += a.stride, out += tile_columns) {
    _mm512_store_ps(out, values(b, low));
    _mm512_store_ps(out + 16, values(b + 16, high));
  }
}

void open(const MixedOpenArgs& a) { a.dtype == Dtype::f32 ? open_as<float>(a) : open_as<std::int8_t>(a); }

template <int R>
void run_rows(const MixedTileArgs& a) {
  __m512 sum[R][2];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
  const float *x = static_cast<const float*>(a.rows_of_a), *w = static_cast<const float*>(a.columns_of_b);
  for (std::int64_t l = 0; l < a.k; ++l, x += tile_rows, w += tile_columns) {
    const __m512 low = _mm512_load_ps(w), high = _mm512_load_ps(w + 16);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const __m512 value = _mm512_set1_ps(x[r]);
      sum[r][0] = _mm512_fmadd_ps(value, low, sum[r][0]);
      sum[r][1] = _mm512_fmadd_ps(value, high, sum[r][1]);
    }
  }
  const __m512 scale = _mm512_set1_ps(a.scale);
  for (int v = 0; 16 * v < a.columns; ++v) {
    const auto here = static_cast<__mmask16>(a.columns >= 16 * v + 16 ? 0xffff : (1 << (a.columns - 16 * v)) - 1);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      float* const y = a.y + r * a.y_stride + 16 * v;
      const __m512 own = v == 0 ? sum[r][0] : sum[r][1];
      const __m512 all = a.adds ? _mm512_add_ps(own, _mm512_maskz_loadu_ps(here, y)) : own;
      _mm512_mask_storeu_ps(y, here, _mm512_mul_ps(all, scale));
    }
  }
}

template <int... Rows>
void run_any(const MixedTileArgs& a, std::integer_sequence<int, Rows...>) {
  ((a.rows == Rows + 1 ? run_rows<Rows + 1>(a) : void()), ...);
}

void run(const MixedTileArgs& a) { run_any(a, std::make_integer_sequence<int, tile_rows>()); }

}  // namespace

const MixedTile mixed_tile = {tile_rows, tile_columns, 1, 4, 4, 256, split<float>, open, run};
const MixedTile mixed_tile_of_bf16 = {tile_rows, tile_columns, 1, 4, 4, 256, split<Bf16>, open, run};

}  // namespace bie::kernels::cpu::avx512bw
