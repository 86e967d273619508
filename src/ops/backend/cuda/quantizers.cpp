#include "ops/backend/quantizers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "ops/backend/backend.h"
#include "ops/backend/cuda/call.h"
#include "ops/checks.h"

namespace bie::ops::cuda {
namespace {

class CudaQuantizers final : public Quantizers {
  Scale mean_scale(const char* op, const char* name, const at::Tensor& x, double c, float floor) const override {
    const kernels::Dtype dtype = kernel_dtype(op, name, x);
    const CudaCall call(op, x.device());
    const at::Tensor dense = x.contiguous(), workspace = call.workspace();
    at::Tensor scale = at::empty({}, x.options().dtype(at::kFloat));
    call(kernels::cuda::mean_scale, dense.const_data_ptr(), dtype, x.numel(), c, floor, scale.mutable_data_ptr<float>(),
         workspace.mutable_data_ptr());
    return {0, scale};
  }

  void init_scale(const char* op, const at::Tensor& scale_a, const at::Tensor& x, double c,
                  void (*check)(const char* op, const at::Tensor& x, double c)) const override {
    check(op, x, c);
    const Scale scale = scale_of(op, "scale_a", scale_a, x.device());
    const CudaCall call(op, x.device());
    const at::Tensor dense = x.contiguous(), workspace = call.workspace();
    call(kernels::cuda::init_scale, dense.const_data_ptr(), kernel_dtype(op, "x", x), x.numel(), c,
         scale.device.mutable_data_ptr<float>(), workspace.mutable_data_ptr());
    bump_version(scale_a);
  }

  Pair quantize(const char* op, const at::Tensor& x, const OptTensor& scale, float floor,
                const CodeRange& range) const override {
    if (!scale.has_value()) {
      const Scale step = mean_scale(op, "x", x, range.mean_to_step, 0);
      return {codes_of(op, x, step, floor, range, nullptr), step.device};
    }
    const Scale step = scale_of(op, "scale", *scale, x.device());
    const CudaCall call(op, x.device());
    at::Tensor out = at::full({}, step.value, x.options().dtype(at::kFloat));
    if (step.device.defined()) out.copy_(step.device.reshape({}));
    return {codes_of(op, x, step, floor, range, out.mutable_data_ptr<float>()), out};
  }

  at::Tensor quantize_codes(const char* op, const at::Tensor& x, const Scale& scale, float floor,
                            const CodeRange& range) const override {
    return codes_of(op, x, scale, floor, range, nullptr);
  }

  Pair amax_quantize(const char* op, const at::Tensor& x, const OptTensor& amax,
                     const kernels::AmaxRange& range) const override {
    const CudaCall call(op, x.device());
    Scale given;
    if (amax.has_value()) {
      given = scale_of(op, "amax", *amax, x.device());
      if (!given.device.defined()) check_amax(op, given.value);
    }
    const kernels::cuda::Scalar most = given.scalar();
    const at::Tensor dense = x.contiguous(), workspace = call.workspace();
    at::Tensor q = at::empty(x.sizes(), x.options());
    at::Tensor scale = at::empty({}, x.options().dtype(at::kFloat));
    call(kernels::cuda::amax_quantize, dense.const_data_ptr(), kernel_dtype(op, "x", x), x.numel(),
         amax.has_value() ? &most : nullptr, range, q.mutable_data_ptr(), scale.mutable_data_ptr<float>(),
         workspace.mutable_data_ptr());
    return {q, scale};
  }

  at::Tensor int8_codes(const char* op, const Scaled& grad) const override {
    const at::Tensor& g = grad.values;
    const CudaCall call(op, g.device());
    const at::MemoryFormat layout = g.suggest_memory_format();
    const at::Tensor dense = g.contiguous(layout), workspace = grad.totals.defined() ? grad.totals : call.workspace();
    at::Tensor q = at::empty(g.sizes(), g.options().dtype(at::kChar), layout);
    call(kernels::cuda::int8_grad, dense.const_data_ptr(), kernel_dtype(op, "g", g), g.numel(), grad.scale.scalar(),
         q.mutable_data_ptr<std::int8_t>(), grad.total_count, workspace.mutable_data_ptr());
    return q.contiguous();  // of codes a fourth of the bytes are moved
  }

  Pair binary_init(const char* op, const at::Tensor& weight) const override {
    const CudaCall call(op, weight.device());
    const at::Tensor dense = weight.contiguous(), workspace = call.workspace();
    at::Tensor q = at::empty(weight.sizes(), weight.options().dtype(at::kChar));
    at::Tensor scale = at::empty({}, weight.options().dtype(at::kFloat));
    call(kernels::cuda::binary_init, dense.const_data_ptr(), kernel_dtype(op, "weight", weight), weight.numel(),
         q.mutable_data_ptr<std::int8_t>(), scale.mutable_data_ptr<float>(), workspace.mutable_data_ptr());
    return {q, scale};
  }

  void check_codes(const char*, const char*, const at::Tensor&, const CodeRange&) const override {}
  void check_scale_of_codes(const char*, const Scale&) const override {}
  void check_initialised(const char*, const char*, const at::Tensor&, const Scale&) const override {}

 private:
  /// @param poison  see kernels::cuda::quantize_codes.
  static at::Tensor codes_of(const char* op, const at::Tensor& x, const Scale& scale, float floor,
                             const CodeRange& range, float* poison) {
    const CudaCall call(op, x.device());
    const at::Tensor dense = x.contiguous();
    at::Tensor codes = at::empty(x.sizes(), x.options().dtype(at::kChar));
    call(kernels::cuda::quantize_codes, dense.const_data_ptr(), kernel_dtype(op, "x", x), x.numel(), scale.scalar(),
         floor, range.lo, range.hi, codes.mutable_data_ptr<std::int8_t>(), poison);
    return codes;
  }
};

}  // namespace

const Quantizers& quantizers() {
  static const CudaQuantizers it;
  return it;
}

}  // namespace bie::ops::cuda
