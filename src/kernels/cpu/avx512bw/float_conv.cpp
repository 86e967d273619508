// Convolutions of floats. Sums have the order of k, as lanes are outputs or pixels.
#include <immintrin.h>

#include "kernels/cpu/passes.h"

namespace bie::kernels::cpu {
namespace {

struct Outputs {
  const float* bias;
  float* y;
  std::int64_t stride;

  void put(int row, __m512 sums, const FloatBlock& block) const {
    float* const to = y + row * stride + block.to;
    const __m512 v = bias == nullptr ? sums : _mm512_add_ps(sums, _mm512_set1_ps(bias[row]));
    if (block.lanes == 0xffff) return _mm512_storeu_ps(to, v);
    const auto some = static_cast<__mmask16>(block.lanes);
    const auto first = static_cast<__mmask16>((1u << __builtin_popcount(block.lanes)) - 1);
    _mm512_mask_storeu_ps(to, first, _mm512_maskz_compress_ps(some, v));
  }
};

/// `count` blocks of as many outputs as `rows`: sums that do not wait for each other.
template <int rows, int count>
void some_blocks(const float* a, const float* from, const std::int64_t* offsets, std::int64_t k,
                 const FloatBlock* blocks, const Outputs& out) {
  __m512 acc[rows][count];
  const float* at[count];
#pragma GCC unroll 12
  for (int b = 0; b < count; ++b) {
    at[b] = from + blocks[b].from;
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r) acc[r][b] = _mm512_setzero_ps();
  }
  for (std::int64_t i = 0; i < k; ++i) {
    __m512 x[count];
#pragma GCC unroll 12
    for (int b = 0; b < count; ++b) x[b] = _mm512_loadu_ps(at[b] + offsets[i]);
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r) {
      const __m512 w = _mm512_set1_ps(a[r * k + i]);
#pragma GCC unroll 12
      for (int b = 0; b < count; ++b) acc[r][b] = _mm512_fmadd_ps(w, x[b], acc[r][b]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 12
    for (int b = 0; b < count; ++b) out.put(r, acc[r][b], blocks[b]);
}

template <int rows>
void all_blocks(const float* a, const float* from, const std::int64_t* offsets, std::int64_t k,
                const FloatBlock* blocks, std::int64_t count, const Outputs& out) {
  constexpr int together = rows == 1 ? 8 : rows <= 3 ? 4 : rows <= 6 ? 2 : 1;
  std::int64_t b = 0;
  for (; b + together <= count; b += together) some_blocks<rows, together>(a, from, offsets, k, blocks + b, out);
  for (; b < count; ++b) some_blocks<rows, 1>(a, from, offsets, k, blocks + b, out);
}

void windows(const float* a, int rows, const float* bias, const float* from, const std::int64_t* offsets,
             std::int64_t k, const FloatBlock* blocks, std::int64_t count, float* y, std::int64_t y_stride) {
  using Run = void (*)(const float*, const float*, const std::int64_t*, std::int64_t, const FloatBlock*, std::int64_t,
                       const Outputs&);
  static constexpr Run of_rows[] = {all_blocks<1>, all_blocks<2>,  all_blocks<3>,  all_blocks<4>,
                                    all_blocks<5>, all_blocks<6>,  all_blocks<7>,  all_blocks<8>,
                                    all_blocks<9>, all_blocks<10>, all_blocks<11>, all_blocks<12>};
  of_rows[rows - 1](a, from, offsets, k, blocks, count, {bias, y, y_stride});
}

template <int count>
void some_pixels(const float* from, const std::int64_t* offsets, const float* panel, std::int64_t k, float* y,
                 std::int64_t y_stride) {
  __m512 acc[count];
#pragma GCC unroll 12
  for (int p = 0; p < count; ++p) acc[p] = _mm512_setzero_ps();
  for (std::int64_t i = 0; i < k; ++i) {
    const float* const at = from + offsets[i];
    const __m512 w = _mm512_load_ps(panel + i * 16);
#pragma GCC unroll 12
    for (int p = 0; p < count; ++p) acc[p] = _mm512_fmadd_ps(_mm512_set1_ps(at[p]), w, acc[p]);
  }
#pragma GCC unroll 12
  for (int p = 0; p < count; ++p) _mm512_storeu_ps(y + p * y_stride, acc[p]);
}

void pixels(const float* from, const std::int64_t* offsets, std::int64_t count, const float* panel, std::int64_t k,
            float* y, std::int64_t y_stride) {
  while (count > 0) {
    const std::int64_t here = count > 8 ? 12 : count > 4 ? 8 : 4;
    const auto run = here == 12 ? some_pixels<12> : here == 8 ? some_pixels<8> : some_pixels<4>;
    run(from, offsets, panel, k, y, y_stride);
    from += here;
    y += here * y_stride;
    count -= here;
  }
}

}  // namespace

const FloatConvPasses avx512bw::float_conv_passes = {12, windows, pixels};

}  // namespace bie::kernels::cpu
