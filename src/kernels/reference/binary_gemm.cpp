// The definition of b1xb1_gemm: one dull loop.
#include "bie/kernels/binary_gemm.h"

#include "kernels/check.h"
#include "kernels/reference/reference.h"

namespace bie::kernels::reference {
namespace {

/// +1 or -1: the sign of xs, or the stored bit.
int activation(const GemmInput& x, std::int64_t row, std::int64_t i) {
  const char* data = static_cast<const char*>(x.data) + row * x.row_stride;
  if (x.dtype == Dtype::bits) return sign_at(data, i);
  const float xs = load_float(data, x.dtype, i) + (x.bias == nullptr ? 0.0f : x.bias[i]);
  return xs >= 0 ? 1 : -1;
}

Status run(const GemmShape& shape, const GemmInput& x, const void* packed, const GemmOutput& y, const Parallel&) {
  const Status checked = check_gemm(shape, x, y, Dtype::bits, max_k_b1);
  if (checked != Status::ok) return checked;
  if (shape.n > 0 && !all_finite(shape, x)) return Status::not_finite;
  const std::int64_t weight_row = row_bytes(Dtype::bits, shape.k);
  for (std::int64_t row = 0; row < shape.m; ++row)
    for (std::int64_t column = 0; column < shape.n; ++column) {
      const char* weight = static_cast<const char*>(packed) + column * weight_row;
      std::int32_t acc = 0;
      for (std::int64_t i = 0; i < shape.k; ++i) acc += activation(x, row, i) * sign_at(weight, i);
      store_scaled(acc, y.scale, static_cast<char*>(y.data) + row * y.row_stride, y.dtype, column);
    }
  return Status::ok;
}

std::size_t packed_bytes(std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>(n * row_bytes(Dtype::bits, k));
}

void prepack(const void* weight, std::int64_t n, std::int64_t k, void* packed, const Parallel&) {
  copy_bytes(weight, packed_bytes(n, k), packed);
}

}  // namespace

const GemmKernel b1xb1_gemm = {"b1xb1_gemm_reference", Isa::reference, nullptr, packed_bytes, prepack, run};

}  // namespace bie::kernels::reference
