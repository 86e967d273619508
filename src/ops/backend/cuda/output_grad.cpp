#include <ATen/Context.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>

#include "ops/backend/cuda/mixed_product.h"
#include "ops/backend/cuda/products.h"

namespace bie::ops::cuda {
namespace {

class CudaOutputGrad final : public OutputGrad {
 public:
  CudaOutputGrad(const char* op, const at::Tensor& g) : op_(op), parts_(float_parts(op, g)) {}

 private:
  Scaled multiplied(const Factor& f, const Scale& scale, bool transposed) const override {
    if (f.codes) return of_codes(f.codes(), scale, transposed);
    return {product(f.values(f.operand, parts_[0].scalar_type(), unit_scale), transposed), scale};
  }

  /// Of codes where the GPU has a kernel for that, else of the codes as floats.
  Scaled of_codes(const Codes& codes, const Scale& scale, bool transposed) const {
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
