#include "ops/backend/quantizers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>

#include "bie/kernels/quantize.h"
#include "ops/backend/cpu/backend.h"
#include "ops/backend/cpu/torch_parallel.h"
#include "ops/checks.h"

namespace bie::ops::cpu {

kernels::IsaSet host_isas(const char* op) {
  check_status(op, kernels::host().status);
  return kernels::host().isas;
}

namespace {

at::Tensor scalar_like(const at::Tensor& x, double value) { return at::full({}, value, x.options().dtype(at::kFloat)); }

const kernels::AmaxCodesKernel& amax_kernel(const char* op, const at::Tensor& x) {
  return chosen(op, kernels::amax_codes_table(), x.numel());
}

class CpuQuantizers final : public Quantizers {
  Scale mean_scale(const char* op, const char* name, const at::Tensor& x, double c, float floor) const override {
    const kernels::Dtype dtype = kernel_dtype(op, name, x);
    const at::Tensor dense = x.contiguous();
    const kernels::MeanKernel& kernel = chosen(op, kernels::mean_table(), x.numel());
    const float mean = kernel.magnitudes(dense.const_data_ptr(), dtype, x.numel(), torch_parallel());
    const float step = static_cast<float>(static_cast<double>(mean) * c);
    TORCH_CHECK_VALUE(std::isfinite(step), op, ": ", name, " holds NaN or infinity");
    return {std::max(step, floor), {}};
  }

  void init_scale(const char* op, const at::Tensor& scale_a, const at::Tensor& x, double c,
                  void (*check)(const char* op, const at::Tensor& x, double c)) const override {
    if (scale_value(op, "scale_a", scale_a) != 0) return;
    check(op, x, c);
    scale_a.fill_(mean_scale(op, "x", x, c, 0).value);
  }

  Pair quantize(const char* op, const at::Tensor& x, const OptTensor& scale, float floor,
                const CodeRange& range) const override {
    const Scale given =
        scale.has_value() ? scale_of(op, "scale", *scale, x.device()) : mean_scale(op, "x", x, range.mean_to_step, 0);
    return {quantize_codes(op, x, given, floor, range), scalar_like(x, given.value)};
  }

  at::Tensor quantize_codes(const char* op, const at::Tensor& x, const Scale& scale, float floor,
                            const CodeRange& range) const override {
    const kernels::Dtype dtype = kernel_dtype(op, "x", x);
    const at::Tensor dense = x.contiguous();
    at::Tensor codes = at::empty(x.sizes(), x.options().dtype(at::kChar));
    const float step = std::max(scale.value, floor);
    // Rows only divide the work here: any split of a dense tensor gives the same codes.
    constexpr std::int64_t run = 16384;
    const std::int64_t whole = x.numel() / run * run;
    const char* from = static_cast<const char*>(dense.const_data_ptr());
    std::int8_t* to = codes.mutable_data_ptr<std::int8_t>();
    const auto quantize_rows = [&](std::int64_t begin, std::int64_t rows, std::int64_t k) {
      if (rows == 0 || k == 0) return;
      const kernels::RowsShape shape{rows, k};
      check_status(op, chosen(op, kernels::quantize_table(), shape)
                           .run(shape, from + kernels::row_bytes(dtype, begin), dtype, kernels::row_bytes(dtype, k),
                                nullptr, step, range.lo, range.hi, to + begin, torch_parallel()));
    };
    quantize_rows(0, whole / run, run);
    quantize_rows(whole, 1, x.numel() - whole);
    return codes;
  }

  Pair amax_quantize(const char* op, const at::Tensor& x, const OptTensor& amax,
                     const kernels::AmaxRange& range) const override {
    const kernels::Dtype dtype = kernel_dtype(op, "x", x);
    const at::Tensor dense = x.contiguous();
    kernels::Extremes all{};
    check_status(op, amax_kernel(op, x).extremes(dense.const_data_ptr(), dtype, x.numel(), &all, torch_parallel()));
    TORCH_CHECK_VALUE(all.all_finite, op, ": x holds NaN or infinity");
    const float most = amax.has_value() ? scale_of(op, "amax", *amax, x.device()).value : all.max;
    check_amax(op, most);
    TORCH_CHECK_TYPE(!range.is_unsigned || all.min >= 0, op,
                     ": x holds negative values, unsigned quantisation wants none");
    at::Tensor q = at::empty(x.sizes(), x.options());
    float scale = 0;
    check_status(op, amax_kernel(op, x).amax_quantize(dense.const_data_ptr(), dtype, x.numel(), most, range,
                                                      q.mutable_data_ptr(), &scale, torch_parallel()));
    return {q, scalar_like(x, scale)};
  }

  at::Tensor int8_codes(const char* op, const Scaled& grad) const override {
    const at::Tensor& g = grad.values;
    const at::Tensor dense = g.contiguous();
    at::Tensor q = at::empty(g.sizes(), g.options().dtype(at::kChar));
    check_status(
        op, amax_kernel(op, g).int8_grad(dense.const_data_ptr(), kernel_dtype(op, "g", g), g.numel(), grad.scale.value,
                                         q.mutable_data_ptr<std::int8_t>(), torch_parallel()));
    return q;
  }

  Pair binary_init(const char* op, const at::Tensor& weight) const override {
    const at::Tensor dense = weight.contiguous();
    at::Tensor q = at::empty(weight.sizes(), weight.options().dtype(at::kChar));
    float scale = 0;
    const kernels::Status status =
        amax_kernel(op, weight)
            .binary_init(dense.const_data_ptr(), kernel_dtype(op, "weight", weight), weight.numel(),
                         q.mutable_data_ptr<std::int8_t>(), &scale, torch_parallel());
    TORCH_CHECK_VALUE(status != kernels::Status::not_finite, op, ": weight holds NaN or infinity");
    TORCH_CHECK_VALUE(status != kernels::Status::bad_scale, op, ": weight minus its mean is beyond float32");
    check_status(op, status);
    return {q, scalar_like(weight, scale)};
  }

  void check_codes(const char* op, const char* name, const at::Tensor& codes, const CodeRange& range) const override {
    const at::Tensor dense = codes.is_non_overlapping_and_dense() ? codes : codes.contiguous();
    TORCH_CHECK_VALUE(
        kernels::codes_within(dense.const_data_ptr<std::int8_t>(), dense.numel(), range.lo, range.hi, torch_parallel()),
        op, ": ", name, " holds codes outside [", range.lo, ", ", range.hi, "]");
  }

  void check_scale_of_codes(const char* op, const Scale& scale) const override {
    TORCH_CHECK_VALUE(scale.value != 0, op, ": scale_a is not initialised, which only a float x can do (init_scale_)");
  }

  void check_initialised(const char* op, const char* name, const at::Tensor& x, const Scale& scale) const override {
    TORCH_CHECK_VALUE(scale.value != 0 || (at::isFloatingType(x.scalar_type()) && !x.any().item<bool>()), op, ": ",
                      name, " is 0, training wants it initialised (init_scale_)");
  }
};

}  // namespace

const Quantizers& quantizers() {
  static const CpuQuantizers it;
  return it;
}

}  // namespace bie::ops::cpu
