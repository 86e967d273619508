#include "ops/backend/cuda/mixed_product.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "ops/backend/cuda/call.h"
#include "ops/backend/cuda/input_pass.h"
#include "ops/backend/cuda/products.h"
#include "ops/gradient/nbit_grad.h"
#include "ops/gradient/sign_grad.h"

namespace bie::ops::cuda {

at::Tensor opened(const Codes& codes, at::ScalarType dtype) {
  return codes.signs ? sign_values(codes.values, unit_scale, dtype) : code_values(codes.values, unit_scale, dtype);
}

std::vector<at::Tensor> float_parts(const char* op, const at::Tensor& g) {
  constexpr int first = 80;  // with bfloat16
  const at::Tensor dense = g.contiguous(g.suggest_memory_format());
  if (gpu_of(op, g.device().index()).sm < first) return {dense.to(at::kFloat)};
  if (g.scalar_type() != at::kFloat) return {dense};
  std::vector<at::Tensor> parts(3);
  for (at::Tensor& part : parts) part = at::empty_like(dense, dense.options().dtype(at::kBFloat16));
  void* const to[3] = {parts[0].mutable_data_ptr(), parts[1].mutable_data_ptr(), parts[2].mutable_data_ptr()};
  const CudaCall call(op, g.device());
  call(kernels::cuda::split_floats, dense.const_data_ptr<float>(), dense.numel(), to);
  return parts;
}

namespace {

/// Sets the operands; false if no kernel takes them.
bool set_operands(const char* op, const std::vector<at::Tensor>& parts, const Codes& codes, const Scale& scale,
                  kernels::cuda::MixedProduct* product) {
  if (parts[0].scalar_type() == at::kFloat) return false;
  product->floats.count = static_cast<int>(parts.size());
  product->floats.dtype = kernel_dtype(op, "g", parts[0]);
  for (std::size_t i = 0; i < parts.size(); ++i) product->floats.data[i] = parts[i].const_data_ptr();
  product->codes = codes.values.const_data_ptr<std::int8_t>();
  product->signs = codes.signs;
  product->gain = scale.scalar();
  return true;
}

at::Tensor workspace_of(std::int64_t size, const Codes& codes) {
  return size > 0 ? at::empty({size}, codes.values.options().dtype(at::kByte)) : at::Tensor();
}
void* data_of(const at::Tensor& workspace) { return workspace.defined() ? workspace.mutable_data_ptr() : nullptr; }

}  // namespace

Scaled mixed_product(const char* op, kernels::cuda::MixedProduct product, const std::vector<at::Tensor>& parts,
                     const Codes& codes, const Scale& scale, at::IntArrayRef sizes, bool want_totals) {
  if (!set_operands(op, parts, codes, scale, &product)) return {};
  const auto needs = kernels::cuda::mixed_needs(gpu_of(op, parts[0].device().index()), product);
  if (!needs) return {};
  const CudaCall call(op, codes.values.device());
  Scaled result{at::empty(sizes, codes.values.options().dtype(at::kFloat))};
  product.out = result.values.mutable_data_ptr<float>();
  if (want_totals && needs->totals > 0) {
    result.totals = call.workspace();
    result.total_count = needs->totals;
    product.totals = result.totals.mutable_data_ptr();
  }
  const at::Tensor workspace = workspace_of(needs->workspace_bytes, codes);
  call(kernels::cuda::mixed_product, product, data_of(workspace));
  return result;
}

std::optional<InputGrads> mixed_input_grads(const char* op, kernels::cuda::MixedProduct product,
                                            const std::vector<at::Tensor>& parts, const Codes& codes,
                                            const Scale& scale, const LinearInput& in, const kernels::InputRule& rule,
                                            bool want_codes) {
  if (!set_operands(op, parts, codes, scale, &product)) return std::nullopt;
  const kernels::cuda::Gpu& gpu = gpu_of(op, parts[0].device().index());
  if (!kernels::cuda::mixed_needs(gpu, product)) return std::nullopt;
  const CudaCall call(op, codes.values.device());
  PlannedInputPass planned(in, at::empty_like(in.x), want_codes);
  const auto bytes = kernels::cuda::mixed_input_grads_bytes(gpu, product, planned.pass);
  if (!bytes) return std::nullopt;
  const at::Tensor workspace = workspace_of(*bytes, codes);
  call(kernels::cuda::mixed_input_grads, product, planned.pass, rule, in.scale.scalar(), data_of(workspace));
  return planned.grads();
}

}  // namespace bie::ops::cuda
