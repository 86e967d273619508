#include <ATen/Context.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>

#include "ops/backend/backend.h"
#include "ops/backend/cuda/mixed_product.h"
#include "ops/backend/cuda/products.h"

namespace bie::ops::cuda {
namespace {

class CudaOutputGrad final : public OutputGrad {
 public:
  CudaOutputGrad(const char* op, const at::Tensor& g) : op_(op), parts_(float_parts(op, g)) {}

  InputGrads input_grads(const Factor& f, const Scale& scale, const LinearInput& in, const kernels::InputRule& rule,
                         bool want_codes) const override {
    const Codes codes = dense(f.codes());
    if (auto grads = mixed_input_grads(op_, sizes_of(codes, false), parts_, codes, scale, in, rule, want_codes))
      return *std::move(grads);
    return input_gradients().of_layer(of_codes(codes, scale, false), in, rule, want_codes);
  }

 private:
  Scaled multiplied(const Factor& f, const Scale& scale, bool transposed) const override {
    if (f.codes) return of_codes(dense(f.codes()), scale, transposed);
    return {product(f.values(f.operand, parts_[0].scalar_type(), unit_scale), transposed), scale};
  }

  static Codes dense(const Codes& codes) { return {codes.values.contiguous(), codes.signs}; }

  kernels::cuda::MixedProduct sizes_of(const Codes& codes, bool transposed) const {
    using kernels::cuda::MixedProduct;
    const std::int64_t m = parts_[0].size(0), n = parts_[0].size(1);
    MixedProduct product{};
    product.kind = transposed ? MixedProduct::Kind::transposed_times : MixedProduct::Kind::times;
    product.rows = transposed ? n : m;
    product.columns = codes.values.size(1);
    product.depth = transposed ? m : n;
    return product;
  }

  /// g times codes: by the mixed kernel where the GPU has one for these sizes, else by torch's product with the codes
  /// as floats.
  Scaled of_codes(const Codes& codes, const Scale& scale, bool transposed) const {
    const kernels::cuda::MixedProduct product = sizes_of(codes, transposed);
    const Scaled out = mixed_product(op_, product, parts_, codes, scale, {product.rows, product.columns}, transposed);
    if (out.values.defined()) return out;
    return {this->product(opened(codes, parts_[0].scalar_type()), transposed), scale};
  }

  at::Tensor product(const at::Tensor& values, bool transposed) const {
    const auto side = [&](const at::Tensor& part) { return transposed ? part.mT() : part; };
    const bool batched = values.dim() == 3;
    if (values.scalar_type() == at::kFloat) {
      const at::NoTF32Guard float32_products;
      return batched ? at::bmm(side(parts_[0]), values) : at::mm(side(parts_[0]), values);
    }
    at::Tensor sum =
        batched ? at::bmm(side(parts_[0]), values, at::kFloat) : at::mm(side(parts_[0]), values, at::kFloat);
    for (std::size_t i = 1; i < parts_.size(); ++i)
      sum = batched ? at::baddbmm(sum, side(parts_[i]), values, at::kFloat)
                    : at::addmm(sum, side(parts_[i]), values, at::kFloat);
    return sum;
  }

  const char* op_;
  std::vector<at::Tensor> parts_;  ///< their sum is g
};

}  // namespace

std::unique_ptr<OutputGrad> output_grad(const char* op, const at::Tensor& g) {
  return std::make_unique<CudaOutputGrad>(op, g);
}

}  // namespace bie::ops::cuda
