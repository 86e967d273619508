// Which GEMM kernel is fastest for a shape: measured, where the table's order is a good guess.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <string>

#include "bie/ops.h"
#include "ops/backend/backend.h"
#include "ops/backend/tuning.h"
#include "ops/dispatcher.h"

namespace bie::ops {
namespace {

kernels::Dtype code_of(const char* op, std::int64_t bits) {
  switch (bits) {
    case 1: return kernels::Dtype::bits;
    case 4: return kernels::Dtype::s4;
    case 8: return kernels::Dtype::s8;
    default: TORCH_CHECK_VALUE(false, op, ": bits: expected 1, 4 or 8, got ", bits);
  }
}

Tuning::Choice tuned(const char* op, std::int64_t bits, const kernels::GemmShape& shape, at::Device device) {
  TORCH_CHECK_VALUE(shape.m > 0 && shape.n > 0 && shape.k > 0, op, ": m, n and k: expected positive numbers, got ",
                    shape.m, ", ", shape.n, " and ", shape.k);
  TORCH_CHECK_VALUE(!device.is_meta(), op, ": the device: expected cpu or cuda, got meta");
  return backend_of(op, device).tuning.tune(op, code_of(op, bits), shape, device);
}

std::string tune_gemm_any(std::int64_t bits, std::int64_t m, std::int64_t n, std::int64_t k, at::Device device) {
  return tuned("tune_gemm", bits, {m, n, k}, device).name;
}

std::int64_t select_binary_kernel_any(std::int64_t m, std::int64_t n, std::int64_t k,
                                      std::optional<at::Device> device) {
  return tuned("select_binary_kernel", 1, {m, n, k}, device.value_or(at::kCPU)).kernel_id;
}

}  // namespace

std::int64_t select_binary_kernel(std::int64_t m, std::int64_t n, std::int64_t k, std::optional<at::Device> device) {
  static const auto op = find_op<std::int64_t(std::int64_t, std::int64_t, std::int64_t, std::optional<at::Device>)>(
      "bie::select_binary_kernel");
  return op.call(m, n, k, device);
}

std::string tune_gemm(std::int64_t bits, std::int64_t m, std::int64_t n, std::int64_t k, at::Device device) {
  static const auto op =
      find_op<std::string(std::int64_t, std::int64_t, std::int64_t, std::int64_t, at::Device)>("bie::tune_gemm");
  return op.call(bits, m, n, k, device);
}

}  // namespace bie::ops

// No tensor tells a device, so there is no key to dispatch on.
TORCH_LIBRARY_IMPL(bie, CompositeExplicitAutograd, m) {
  m.impl("select_binary_kernel", bie::ops::select_binary_kernel_any);
  m.impl("tune_gemm", bie::ops::tune_gemm_any);
}
