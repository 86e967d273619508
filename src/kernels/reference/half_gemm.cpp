// The definition of half_gemm; its arrangement is the weight as it is.
#include <cmath>

#include "kernels/reference/reference.h"

namespace bie::kernels::reference {
namespace {

std::size_t packed_bytes(std::int64_t n, std::int64_t k) { return static_cast<std::size_t>(2 * n * k); }

void prepack(const void* w, std::int64_t n, std::int64_t k, void* packed, const Parallel&) {
  if (n * k > 0) std::memcpy(packed, w, packed_bytes(n, k));
}

template <Dtype dtype>
Status run(const GemmShape& s, const float* x, const void* packed, const float* bias, float* y, const Parallel&) {
  if (s.m < 0 || s.n < 0 || s.k < 0) return Status::bad_shape;
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) {
      float sum = 0;
      for (std::int64_t at = 0; at < s.k; ++at)
        sum = std::fma(x[i * s.k + at], load_float(packed, dtype, j * s.k + at), sum);
      y[i * s.n + j] = bias == nullptr ? sum : sum + bias[j];
    }
  return Status::ok;
}

}  // namespace

const HalfGemmKernel f16_gemm = {"f16_gemm_reference", Isa::reference, nullptr, packed_bytes, prepack, run<Dtype::f16>};
const HalfGemmKernel bf16_gemm = {"bf16_gemm_reference", Isa::reference, nullptr,
                                  packed_bytes,          prepack,        run<Dtype::bf16>};

}  // namespace bie::kernels::reference
