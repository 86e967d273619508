#include <immintrin.h>

#include "kernels/cpu/gemm/double_gemm_loop.h"

namespace bie::kernels::cpu {
namespace {

struct Doubles {
  using Vector = __m256d;
  static constexpr int lanes = 4, most = 4;
  static Vector load(const double* at) { return _mm256_loadu_pd(at); }
  static Vector broadcast(double x) { return _mm256_set1_pd(x); }
  static Vector add(Vector x, Vector b, Vector sum) { return _mm256_fmadd_pd(x, b, sum); }
  static void store(double* to, Vector v) { _mm256_storeu_pd(to, v); }
};

}  // namespace

const DoubleGemmTile avx2::double_gemm_tile = double_tile<Doubles>();

}  // namespace bie::kernels::cpu
