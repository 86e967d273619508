#include <immintrin.h>

#include "kernels/cpu/gemm/double_gemm_loop.h"

namespace bie::kernels::cpu {
namespace {

struct Doubles {
  using Vector = __m512d;
  static constexpr int lanes = 8, most = 8;
  static Vector load(const double* at) { return _mm512_loadu_pd(at); }
  static Vector broadcast(double x) { return _mm512_set1_pd(x); }
  static Vector add(Vector x, Vector b, Vector sum) { return _mm512_fmadd_pd(x, b, sum); }
  static void store(double* to, Vector v) { _mm512_storeu_pd(to, v); }
};

}  // namespace

const DoubleGemmTile avx512bw::double_gemm_tile = double_tile<Doubles>();

}  // namespace bie::kernels::cpu
