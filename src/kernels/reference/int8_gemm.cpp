// The definition of s8xs8_gemm: one dull loop.
#include "bie/kernels/int8_gemm.h"

#include "kernels/check.h"
#include "kernels/reference/reference.h"

namespace bie::kernels::reference {
namespace {

int activation(const GemmInput& x, std::int64_t row, std::int64_t i) {
  const char* data = static_cast<const char*>(x.data) + row * x.row_stride;
  if (x.dtype == Dtype::s8) return s8_at(data, i);
  const float xs = load_float(data, x.dtype, i) + (x.bias == nullptr ? 0.0f : x.bias[i]);
  return quantize(xs, x.step, -128, 127);
}

Status run(const GemmShape& shape, const GemmInput& x, const void* packed, const GemmOutput& y, const Parallel&) {
  const Status checked = check_gemm(shape, x, y, Dtype::s8, max_k_s8);
  if (checked != Status::ok) return checked;
  if (shape.n > 0 && !all_finite(shape, x)) return Status::not_finite;
  const std::int64_t weight_row = row_bytes(Dtype::s8, shape.k);
  for (std::int64_t row = 0; row < shape.m; ++row)
    for (std::int64_t column = 0; column < shape.n; ++column) {
      const char* weight = static_cast<const char*>(packed) + column * weight_row;
      std::int32_t acc = 0;
      for (std::int64_t i = 0; i < shape.k; ++i) acc += activation(x, row, i) * s8_at(weight, i);
      store_scaled(acc, y.scale, static_cast<char*>(y.data) + row * y.row_stride, y.dtype, column);
    }
  return Status::ok;
}

std::size_t packed_bytes(std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>(n * row_bytes(Dtype::s8, k));
}

void prepack(const void* weight, std::int64_t n, std::int64_t k, void* packed, const Parallel&) {
  copy_bytes(weight, packed_bytes(n, k), packed);
}

}  // namespace

const GemmKernel s8xs8_gemm = {"s8xs8_gemm_reference", Isa::reference, nullptr, packed_bytes, prepack, run};

}  // namespace bie::kernels::reference
