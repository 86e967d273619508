#include <ATen/Context.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "bie/kernels/mixed_gemm.h"
#include "ops/backend/cpu/backend.h"
#include "ops/backend/cpu/products.h"
#include "ops/backend/cpu/torch_parallel.h"
#include "ops/backend/gradients.h"

namespace bie::ops::cpu {
namespace {

class CpuOutputGrad final : public OutputGrad {
 public:
  CpuOutputGrad(const char* op, const at::Tensor& g)
      : op_(op), g_(g.scalar_type() == at::kBFloat16 ? g : g.to(at::kFloat)) {}

  InputGrads input_grads(const Factor& f, const Scale& scale, const LinearInput& in, const kernels::InputRule& rule,
                         bool want_codes) const override {
    return input_gradients().of_layer(times(f, scale), in, rule, want_codes);
  }

 private:
  Scaled multiplied(const Factor& f, const Scale& scale, bool transposed) const override {
    const at::Tensor side = transposed ? g_.mT() : g_;
    if (const at::Tensor result = mixed_product(side, f, scale); result.defined()) return {result};
    if (g_.scalar_type() == at::kBFloat16)
      return CpuOutputGrad(op_, g_.to(at::kFloat)).multiplied(f, scale, transposed);
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

  /// torch's product is MKL's, which runs at full rate on Intel's CPUs and at less than half of it on others.
  static bool mkl_is_at_home() {
#if defined(__x86_64__)
    return __builtin_cpu_is("intel") != 0;
#else
    return true;
#endif
  }

  /// The product by a kernel of bie's, or undefined where torch's product is better.
  at::Tensor mixed_product(const at::Tensor& side, const Factor& f, const Scale& scale) const {
    if (side.dim() != 2 || (side.stride(0) != 1 && side.stride(1) != 1)) return {};
    const kernels::GemmShape shape = {side.size(0), f.operand.size(1), side.size(1)};
    const kernels::MixedGemmKernel& kernel = chosen(op_, kernels::mixed_gemm_table(), shape);
    if (kernel.isa == kernels::Isa::reference || (kernel.isa != kernels::Isa::amx && mkl_is_at_home())) return {};
    const Codes codes = f.codes ? f.codes() : Codes();
    const bool bytes = codes.values.defined() && codes.values.scalar_type() == at::kChar;
    const at::Tensor b = !bytes        ? f.values(f.operand, at::kFloat, unit_scale)
                         : codes.signs ? gradients().sign_values(codes.values, unit_scale, at::kChar)
                                       : codes.values.contiguous();
    at::Tensor y = at::empty({shape.m, shape.n}, g_.options().dtype(at::kFloat));
    const kernels::MixedGemmInput in = {side.const_data_ptr(), kernel_dtype(op_, "g", side),
                                        side.stride(0),        side.stride(1),
                                        b.const_data_ptr(),    bytes ? kernels::Dtype::s8 : kernels::Dtype::f32};
    check_status(op_, kernel.run(shape, in, scale.value, y.mutable_data_ptr<float>(), torch_parallel()));
    return y;
  }

  /// A large operand is opened a few columns at a time, so that its float32 values stay near the core.
  static std::int64_t columns_at_once(const at::Tensor& operand) {
    constexpr std::int64_t large = std::int64_t{4} << 20, block = std::int64_t{2} << 20, step = 64;  // elements
    if (operand.dim() != 2 || operand.numel() <= large) return operand.size(-1);
    return std::max(step, block / operand.size(0) / step * step);
  }

  const char* op_;
  at::Tensor g_;
};

}  // namespace

std::unique_ptr<OutputGrad> output_grad(const char* op, const at::Tensor& g) {
  return std::make_unique<CpuOutputGrad>(op, g);
}

}  // namespace bie::ops::cpu
