// The definition of float_gemm; its arrangement is the weight as it is.
#include <cmath>
#include <cstring>

#include "kernels/reference/reference.h"

namespace bie::kernels::reference {
namespace {

std::size_t packed_bytes(std::int64_t n, std::int64_t k) { return static_cast<std::size_t>(n * k) * sizeof(float); }

void prepack(const float* w, std::int64_t n, std::int64_t k, float* packed) {
  if (n * k > 0) std::memcpy(packed, w, packed_bytes(n, k));
}

Status run(const GemmShape& s, const float* x, const float* packed, const float* bias, float* y, const Parallel&) {
  if (s.m < 0 || s.n < 0 || s.k < 0) return Status::bad_shape;
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) {
      float sum = 0;
      for (std::int64_t at = 0; at < s.k; ++at) sum = std::fma(x[i * s.k + at], packed[j * s.k + at], sum);
      y[i * s.n + j] = bias == nullptr ? sum : sum + bias[j];
    }
  return Status::ok;
}

}  // namespace

const FloatGemmKernel float_gemm = {"float_gemm_reference", Isa::reference, nullptr, packed_bytes, prepack, run};

}  // namespace bie::kernels::reference
