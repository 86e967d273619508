#include "kernels/cpu/float_gemm_rows.h"
#include "kernels/cpu/passes.h"

namespace bie::kernels::cpu {
namespace {

/// Lanes are outputs, so the order of each sum is that of k whatever the vectors are.
template <int rows, class Rows>
void multiply(const float* a, std::int64_t lda, const Rows& b, std::int64_t k, float (*y)[16]) {
  float acc[rows][16] = {};
  for (std::int64_t i = 0; i < k; ++i) {
    const float* const w = b.row(i);
    for (int r = 0; r < rows; ++r) {
      const float x = a[r * lda + i];
      for (int j = 0; j < 16; ++j) acc[r][j] = __builtin_fmaf(x, w[j], acc[r][j]);
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < 16; ++j) y[r][j] = acc[r][j];
}

template <class Rows>
void of_rows(const float* a, std::int64_t lda, int rows, const Rows& b, std::int64_t k, float (*y)[16]) {
  switch (rows) {
    case 1: return multiply<1>(a, lda, b, k, y);
    case 2: return multiply<2>(a, lda, b, k, y);
    case 3: return multiply<3>(a, lda, b, k, y);
    case 4: return multiply<4>(a, lda, b, k, y);
    case 5: return multiply<5>(a, lda, b, k, y);
    default: return multiply<6>(a, lda, b, k, y);
  }
}

void tile(const float* a, std::int64_t lda, int rows, const float* panel, std::int64_t k, float (*y)[16]) {
  of_rows(a, lda, rows, Panel{panel}, k, y);
}

void scattered(const float* a, std::int64_t lda, int rows, const float* from, const std::int64_t* offsets,
               std::int64_t k, float (*y)[16]) {
  of_rows(a, lda, rows, Scattered{from, offsets}, k, y);
}

template <int count>
void some_pixels(const float* from, std::int64_t step, const std::int64_t* offsets, const float* panel, std::int64_t k,
                 float* y, std::int64_t y_stride) {
  float acc[count][16] = {};
  for (std::int64_t i = 0; i < k; ++i) {
    const float* const at = from + offsets[i];
    for (int p = 0; p < count; ++p) {
      const float x = at[p * step];
      for (int j = 0; j < 16; ++j) acc[p][j] = __builtin_fmaf(x, panel[i * 16 + j], acc[p][j]);
    }
  }
  for (int p = 0; p < count; ++p)
    for (int j = 0; j < 16; ++j) y[p * y_stride + j] = acc[p][j];
}

void pixels(const float* from, std::int64_t step, const std::int64_t* offsets, std::int64_t count, const float* panel,
            std::int64_t k, float* y, std::int64_t y_stride) {
  for (std::int64_t p = 0; p < count; p += 4)
    some_pixels<4>(from + p * step, step, offsets, panel, k, y + p * y_stride, y_stride);
}

}  // namespace

const FloatGemmPasses BIE_PASS_SET::float_gemm_passes = {6, tile, scattered, pixels};

}  // namespace bie::kernels::cpu
