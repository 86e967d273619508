// Products of floats: lanes are outputs, so each sum has the order of k.
#include <immintrin.h>

#include "kernels/cpu/float_gemm_rows.h"
#include "kernels/cpu/passes.h"

namespace bie::kernels::cpu {
namespace {

template <int rows, class Rows>
void multiply(const float* a, std::int64_t lda, const Rows& b, std::int64_t k, float (*y)[16]) {
  __m512 acc[rows];
  for (int r = 0; r < rows; ++r) acc[r] = _mm512_setzero_ps();
  for (std::int64_t i = 0; i < k; ++i) {
    const __m512 w = _mm512_loadu_ps(b.row(i));
    for (int r = 0; r < rows; ++r) acc[r] = _mm512_fmadd_ps(_mm512_set1_ps(a[r * lda + i]), w, acc[r]);
  }
  for (int r = 0; r < rows; ++r) _mm512_storeu_ps(y[r], acc[r]);
}

template <class Rows>
struct OfRows {
  using Multiply = void (*)(const float*, std::int64_t, const Rows&, std::int64_t, float (*)[16]);
  static constexpr Multiply count[] = {multiply<1, Rows>, multiply<2, Rows>,  multiply<3, Rows>,  multiply<4, Rows>,
                                       multiply<5, Rows>, multiply<6, Rows>,  multiply<7, Rows>,  multiply<8, Rows>,
                                       multiply<9, Rows>, multiply<10, Rows>, multiply<11, Rows>, multiply<12, Rows>};
};

void tile(const float* a, std::int64_t lda, int rows, const float* panel, std::int64_t k, float (*y)[16]) {
  OfRows<Panel>::count[rows - 1](a, lda, {panel}, k, y);
}

void scattered(const float* a, std::int64_t lda, int rows, const float* from, const std::int64_t* offsets,
               std::int64_t k, float (*y)[16]) {
  OfRows<Scattered>::count[rows - 1](a, lda, {from, offsets}, k, y);
}

/// step 0: any.
template <int count, int step>
void some_pixels(const float* from, std::int64_t any_step, const std::int64_t* offsets, const float* panel,
                 std::int64_t k, float* y, std::int64_t y_stride) {
  const std::int64_t by = step == 0 ? any_step : step;
  __m512 acc[count];
#pragma GCC unroll 12
  for (int p = 0; p < count; ++p) acc[p] = _mm512_setzero_ps();
  for (std::int64_t i = 0; i < k; ++i) {
    const float* const at = from + offsets[i];
    const __m512 w = _mm512_load_ps(panel + i * 16);
#pragma GCC unroll 12
    for (int p = 0; p < count; ++p) acc[p] = _mm512_fmadd_ps(_mm512_set1_ps(at[p * by]), w, acc[p]);
  }
#pragma GCC unroll 12
  for (int p = 0; p < count; ++p) _mm512_storeu_ps(y + p * y_stride, acc[p]);
}

template <int step>
void pixels_of(const float* from, std::int64_t by, const std::int64_t* offsets, std::int64_t count, const float* panel,
               std::int64_t k, float* y, std::int64_t y_stride) {
  while (count > 0) {
    const std::int64_t here = count > 8 ? 12 : count > 4 ? 8 : 4;
    const auto run = here == 12 ? some_pixels<12, step> : here == 8 ? some_pixels<8, step> : some_pixels<4, step>;
    run(from, by, offsets, panel, k, y, y_stride);
    from += here * by;
    y += here * y_stride;
    count -= here;
  }
}

void pixels(const float* from, std::int64_t step, const std::int64_t* offsets, std::int64_t count, const float* panel,
            std::int64_t k, float* y, std::int64_t y_stride) {
  (step == 1   ? pixels_of<1>
   : step == 2 ? pixels_of<2>
               : pixels_of<0>)(from, step, offsets, count, panel, k, y, y_stride);
}

}  // namespace

const FloatGemmPasses avx512bw::float_gemm_passes = {12, tile, scattered, pixels};

}  // namespace bie::kernels::cpu
