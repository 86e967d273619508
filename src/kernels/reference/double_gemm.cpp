// The definition of double_gemm.
#include <cmath>

#include "kernels/reference/reference.h"

namespace bie::kernels::reference {
namespace {

Status run(const DoubleGemm& g, const Parallel&) {
  if (g.m < 0 || g.n < 0 || g.k < 0) return Status::bad_shape;
  for (std::int64_t i = 0; i < g.m; ++i)
    for (std::int64_t j = 0; j < g.n; ++j) {
      double sum = g.c[i * g.c_row + j];
      for (std::int64_t p = 0; p < g.k; ++p) {
        const double b = g.b.data[p * g.b.row + j * g.b.column];
        sum = std::fma(g.a.data[i * g.a.row + p * g.a.column], g.subtract ? -b : b, sum);
      }
      g.c[i * g.c_row + j] = sum;
    }
  return Status::ok;
}

}  // namespace

const DoubleGemmKernel double_gemm = {"double_gemm_reference", Isa::reference, nullptr, run};

}  // namespace bie::kernels::reference
