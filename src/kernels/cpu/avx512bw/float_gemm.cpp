// Products of floats: lanes are outputs, so each sum has the order of k.
#include <immintrin.h>

#include "kernels/cpu/passes.h"

namespace bie::kernels::cpu {
namespace {

template <int rows>
void multiply(const float* a, std::int64_t lda, const float* panel, std::int64_t k, float (*y)[16]) {
  __m512 acc[rows];
  for (int r = 0; r < rows; ++r) acc[r] = _mm512_setzero_ps();
  for (std::int64_t i = 0; i < k; ++i) {
    const __m512 w = _mm512_loadu_ps(panel + i * 16);
    for (int r = 0; r < rows; ++r) acc[r] = _mm512_fmadd_ps(_mm512_set1_ps(a[r * lda + i]), w, acc[r]);
  }
  for (int r = 0; r < rows; ++r) _mm512_storeu_ps(y[r], acc[r]);
}

using Multiply = void (*)(const float*, std::int64_t, const float*, std::int64_t, float (*)[16]);
constexpr Multiply of_rows[] = {multiply<1>, multiply<2>, multiply<3>, multiply<4>,  multiply<5>,  multiply<6>,
                                multiply<7>, multiply<8>, multiply<9>, multiply<10>, multiply<11>, multiply<12>};

void tile(const float* a, std::int64_t lda, int rows, const float* panel, std::int64_t k, float (*y)[16]) {
  of_rows[rows - 1](a, lda, panel, k, y);
}

}  // namespace

const FloatGemmPasses avx512bw::float_gemm_passes = {12, tile};

}  // namespace bie::kernels::cpu
