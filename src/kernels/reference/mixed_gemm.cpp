// The reference of mixed_gemm: sums in float64.
#include "bie/kernels/mixed_gemm.h"

#include "kernels/arithmetic/float_bits.h"
#include "kernels/reference/reference.h"

namespace bie::kernels::reference {
namespace {

Status run(const GemmShape& s, const MixedGemmInput& in, float scale, float* y, const Parallel&) {
  if (s.m < 0 || s.n < 0 || s.k < 0) return Status::bad_shape;
  if (in.a_dtype != Dtype::f32 && in.a_dtype != Dtype::bf16) return Status::bad_dtype;
  if (in.b_dtype != Dtype::f32 && in.b_dtype != Dtype::s8) return Status::bad_dtype;
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < s.k; ++l) {
        const std::int64_t at = l * s.n + j;
        const double b = in.b_dtype == Dtype::s8 ? s8_at(in.b, at) : static_cast<const float*>(in.b)[at];
        sum += load_float(in.a, in.a_dtype, i * in.a_row + l * in.a_column) * b;
      }
      y[i * s.n + j] = static_cast<float>(scale * sum);
    }
  return Status::ok;
}

}  // namespace

const MixedGemmKernel mixed_gemm = {"mixed_gemm_reference", Isa::reference, nullptr, run};

}  // namespace bie::kernels::reference
