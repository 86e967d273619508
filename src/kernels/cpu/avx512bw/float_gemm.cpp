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

}  // namespace

const FloatGemmPasses avx512bw::float_gemm_passes = {12, tile, scattered};

}  // namespace bie::kernels::cpu
