#include "ops/checks.h"

#include "bie/kernels/cuda/device.h"

namespace bie::ops {

bool is_float_type(at::ScalarType type) { return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf; }

kernels::Dtype kernel_dtype(const char* op, const char* name, const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return kernels::Dtype::f32;
    case at::kBFloat16: return kernels::Dtype::bf16;
    case at::kHalf: return kernels::Dtype::f16;
    case at::kChar: return kernels::Dtype::s8;
    default: break;
  }
  TORCH_CHECK_TYPE(false, op, ": ", name, ": expected float32, bfloat16, float16 or int8, got ", tensor.scalar_type());
}

void check_float(const char* op, const char* name, const at::Tensor& tensor) {
  TORCH_CHECK_TYPE(is_float_type(tensor.scalar_type()), op, ": ", name, ": expected float32, bfloat16 or float16, got ",
                   tensor.scalar_type());
}

std::int64_t fixed_size(const at::Tensor& tensor, std::int64_t axis) {
  return tensor.sym_size(axis).guard_int(__FILE__, __LINE__);
}

void check_meta(const char* op, const char* name, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.is_meta(), op, ": expected one device, got ", name, " on ", tensor.device(),
                    " and another tensor on meta");
}

kernels::Dtype out_dtype(const at::Tensor& out) {
  switch (out.scalar_type()) {
    case at::kBFloat16: return kernels::Dtype::bf16;
    case at::kHalf: return kernels::Dtype::f16;
    case at::kInt: return kernels::Dtype::s32;
    default: return kernels::Dtype::f32;
  }
}

kernels::ImageLayout layout_of(const at::Tensor& x) {
  return x.suggest_memory_format() == at::MemoryFormat::ChannelsLast ? kernels::ImageLayout::nhwc
                                                                     : kernels::ImageLayout::nchw;
}

void check_one_device(const char* op, std::initializer_list<at::Tensor> tensors) {
  const at::Tensor* first = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    if (first == nullptr) first = &tensor;
    TORCH_CHECK_VALUE(tensor.device() == first->device(), op, ": expected one device, got tensors on ", first->device(),
                      " and ", tensor.device());
  }
}

void check_status(const char* op, kernels::Status status) {
  if constexpr (BIE_WITH_CUDA) {  // which alone has last_error
    if (status == kernels::Status::launch_failed || status == kernels::Status::device_error)
      TORCH_CHECK(false, op, ": ", kernels::describe(status), ": ", kernels::cuda::last_error());
  }
  TORCH_CHECK_VALUE(status == kernels::Status::ok, op, ": ", kernels::describe(status));
}

at::Tensor float_bias(const char* op, const at::Tensor& bias, std::int64_t k) {
  if (!bias.defined()) return bias;
  check_float(op, "bias_a", bias);
  TORCH_CHECK_VALUE(bias.dim() == 1 && bias.size(0) == k, op, ": bias_a: expected [", k, "], got ", bias.sizes());
  return bias.to(at::kFloat).contiguous();
}

Rows rows_of(const at::Tensor& x) {
  if (x.dim() == 2 && x.stride(1) == 1 && x.stride(0) >= x.size(1))
    return {x, x.size(0), x.stride(0) * static_cast<std::int64_t>(x.element_size())};
  const at::Tensor dense = x.contiguous();
  const std::int64_t last = x.size(-1);
  return {dense, last == 0 ? 0 : dense.numel() / last, last * static_cast<std::int64_t>(x.element_size())};
}

}  // namespace bie::ops
