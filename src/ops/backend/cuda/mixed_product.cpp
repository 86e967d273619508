#include "ops/backend/cuda/mixed_product.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "ops/backend/cuda/call.h"
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

Scaled mixed_product(const char* op, kernels::cuda::MixedProduct product, const std::vector<at::Tensor>& parts,
                     const Codes& codes, const Scale& scale, at::IntArrayRef sizes, bool want_totals) {
  if (parts[0].scalar_type() == at::kFloat) return {};
  product.floats.count = static_cast<int>(parts.size());
  product.floats.dtype = kernel_dtype(op, "g", parts[0]);
  for (std::size_t i = 0; i < parts.size(); ++i) product.floats.data[i] = parts[i].const_data_ptr();
  product.codes = codes.values.const_data_ptr<std::int8_t>();
  product.signs = codes.signs;
  product.gain = scale.scalar();
  const auto needs = kernels::cuda::mixed_needs(gpu_of(op, parts[0].device().index()), product);
  if (!needs) return {};
  const CudaCall call(op, codes.values.device());
  const auto bytes = codes.values.options().dtype(at::kByte);
  Scaled result{at::empty(sizes, bytes.dtype(at::kFloat))};
  product.out = result.values.mutable_data_ptr<float>();
  if (want_totals && needs->totals > 0) {
    result.totals = call.workspace();
    result.total_count = needs->totals;
    product.totals = result.totals.mutable_data_ptr();
  }
  at::Tensor workspace;
  if (needs->workspace_bytes > 0) workspace = at::empty({needs->workspace_bytes}, bytes);
  call(kernels::cuda::mixed_product, product, workspace.defined() ? workspace.mutable_data_ptr() : nullptr);
  return result;
}

}  // namespace bie::ops::cuda
