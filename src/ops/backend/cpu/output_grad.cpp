#include <ATen/Context.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "ops/backend/cpu/products.h"

namespace bie::ops::cpu {
namespace {

class CpuOutputGrad final : public OutputGrad {
 public:
  explicit CpuOutputGrad(const at::Tensor& g) : g_(g.to(at::kFloat)) {}

 private:
  Scaled multiplied(const Factor& f, const Scale& scale, bool transposed) const override {
    const at::Tensor side = transposed ? g_.mT() : g_;
    const std::int64_t all = f.operand.size(-1), columns = columns_at_once(f.operand);
    if (columns >= all) {
      const at::Tensor values = f.values(f.operand, at::kFloat, scale);
      const at::NoTF32Guard float32_products;
      return {values.dim() == 3 ? at::bmm(side, values) : at::mm(side, values)};
    }
    const at::Tensor result = at::empty({side.size(0), all}, g_.options());
    for (std::int64_t first = 0; first < all; first += columns) {
      const std::int64_t count = std::min(columns, all - first);
      const at::Tensor some = f.operand.narrow(-1, first, count).contiguous();
      at::Tensor to = result.narrow(-1, first, count);
      at::mm_out(to, side, f.values(some, at::kFloat, scale));
    }
    return {result};
  }

  /// A large operand is opened a few columns at a time, so that its float32 values stay near the core.
  static std::int64_t columns_at_once(const at::Tensor& operand) {
    constexpr std::int64_t large = std::int64_t{4} << 20, block = std::int64_t{2} << 20, step = 64;  // elements
    if (operand.dim() != 2 || operand.numel() <= large) return operand.size(-1);
    return std::max(step, block / operand.size(0) / step * step);
  }

  at::Tensor g_;
};

}  // namespace

std::unique_ptr<OutputGrad> output_grad(const at::Tensor& g) { return std::make_unique<CpuOutputGrad>(g); }

}  // namespace bie::ops::cpu
