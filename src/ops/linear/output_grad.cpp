#include "ops/linear/output_grad.h"

#include <ATen/Context.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

namespace bie::ops {

OutputGrad::OutputGrad(const char* op, const at::Tensor& g) : op_(op) {
  if constexpr (with_cuda) {
    if (g.is_cuda()) {
      parts_ = float_parts(op, g);
      return;
    }
  }
  parts_ = {g.to(at::kFloat)};
}

Scaled OutputGrad::product_of(const Codes& codes, const Scale& scale, bool transposed) const {
  if constexpr (with_cuda) {
    using kernels::cuda::MixedProduct;
    const at::Tensor dense = codes.values.contiguous();
    const std::int64_t m = parts_[0].size(0), n = parts_[0].size(1), k = dense.size(1);
    MixedProduct product{};
    product.kind = transposed ? MixedProduct::Kind::transposed_times : MixedProduct::Kind::times;
    product.rows = transposed ? n : m;
    product.columns = k;
    product.depth = transposed ? m : n;
    const Scaled out = mixed_product(op_, product, parts_, {dense, codes.signs}, scale, {product.rows, k}, transposed);
    if (out.values.defined()) return out;
    return {this->product(opened({dense, codes.signs}, parts_[0].scalar_type()), transposed), scale};
  }
  return {};
}

at::Tensor OutputGrad::product(const at::Tensor& values, bool transposed) const {
  const auto side = [&](const at::Tensor& part) { return transposed ? part.mT() : part; };
  const bool batched = values.dim() == 3;
  if (values.scalar_type() == at::kFloat) {
    const at::NoTF32Guard float32_products;
    return batched ? at::bmm(side(parts_[0]), values) : at::mm(side(parts_[0]), values);
  }
  at::Tensor sum = batched ? at::bmm(side(parts_[0]), values, at::kFloat) : at::mm(side(parts_[0]), values, at::kFloat);
  for (std::size_t i = 1; i < parts_.size(); ++i)
    sum = batched ? at::baddbmm(sum, side(parts_[i]), values, at::kFloat)
                  : at::addmm(sum, side(parts_[i]), values, at::kFloat);
  return sum;
}

std::int64_t OutputGrad::columns_at_once(const at::Tensor& operand) const {
  constexpr std::int64_t large = std::int64_t{4} << 20, block = std::int64_t{2} << 20, step = 64;  // elements
  if (operand.dim() != 2 || operand.numel() <= large) return operand.size(-1);
  return std::max(step, block / operand.size(0) / step * step);
}

at::Tensor OutputGrad::empty_product(std::int64_t columns, bool transposed) const {
  return at::empty({parts_[0].size(transposed ? 1 : 0), columns}, parts_[0].options());
}

void OutputGrad::multiply_into(at::Tensor columns, const at::Tensor& codes, bool transposed) const {
  at::mm_out(columns, transposed ? parts_[0].mT() : parts_[0], codes);
}

}  // namespace bie::ops
