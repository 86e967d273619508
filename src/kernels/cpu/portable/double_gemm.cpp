// Products of doubles for any CPU, one fused multiply-add a term.
#include "kernels/cpu/gemm/double_gemm_loop.h"

namespace bie::kernels::cpu {
namespace {

struct Doubles {
  using Vector = double;
  static constexpr int lanes = 1, most = 4;
  static Vector load(const double* at) { return *at; }
  static Vector broadcast(double x) { return x; }
  static Vector add(Vector x, Vector b, Vector sum) { return __builtin_fma(x, b, sum); }
  static void store(double* to, Vector v) { *to = v; }
};

}  // namespace

const DoubleGemmTile portable::double_gemm_tile = double_tile<Doubles>();

}  // namespace bie::kernels::cpu
