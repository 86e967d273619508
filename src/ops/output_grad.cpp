#include "ops/output_grad.h"

#include <ATen/Context.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "ops/cuda_products.h"

namespace bie::ops {
namespace {

bool has_tensor_cores(const char* op, const at::Tensor& g) {
  constexpr int first = 80;  // with bfloat16
  if constexpr (with_cuda) return g.is_cuda() && gpu_of(op, g.device().index()).sm >= first;
  return false;
}

}  // namespace

OutputGrad::OutputGrad(const char* op, const at::Tensor& g) {
  if (!has_tensor_cores(op, g)) {
    parts_ = {g.to(at::kFloat)};
  } else if (g.scalar_type() != at::kFloat) {
    codes_ = g.scalar_type();
    parts_ = {g};
  } else {
    codes_ = at::kBFloat16;
    at::Tensor rest = g;
    for (int i = 0; i < 3; ++i) {
      parts_.push_back(rest.to(at::kBFloat16));
      if (i < 2) rest = rest.sub(parts_.back());
    }
  }
}

at::Tensor OutputGrad::product(const at::Tensor& codes, bool transposed) const {
  const auto side = [&](const at::Tensor& part) { return transposed ? part.mT() : part; };
  const bool batched = codes.dim() == 3;
  if (codes_ == at::kFloat) {
    const at::NoTF32Guard float32_products;
    return batched ? at::bmm(side(parts_[0]), codes) : at::mm(side(parts_[0]), codes);
  }
  at::Tensor sum = batched ? at::bmm(side(parts_[0]), codes, at::kFloat) : at::mm(side(parts_[0]), codes, at::kFloat);
  for (std::size_t i = 1; i < parts_.size(); ++i)
    sum = batched ? at::baddbmm(sum, side(parts_[i]), codes, at::kFloat)
                  : at::addmm(sum, side(parts_[i]), codes, at::kFloat);
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
