// The quantisers of docs/spec/quantizers.md and the first-batch scale.
#include "ops/quantize/quantizers.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cmath>

#include "bie/ops.h"
#include "ops/backend/backend.h"
#include "ops/checks.h"
#include "ops/registration.h"

namespace bie::ops {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;

Pair quantize(const char* op, const at::Tensor& x, const OptTensor& scale, double eps, const CodeRange& range) {
  check_float(op, "x", x);
  check_eps(op, eps);
  return backend_of(op, x).quantizers.quantize(op, x, scale, static_cast<float>(eps), range);
}

Pair q8_quantize_real(const at::Tensor& x, const OptTensor& scale, double eps) {
  return quantize("q8_quantize", x, scale, eps, q8_range);
}

Pair q4_quantize_real(const at::Tensor& x, const OptTensor& scale, double eps) {
  return quantize("q4_quantize", x, scale, eps, q4_range);
}

Pair quantize_meta(const char* op, const at::Tensor& x) {
  check_meta(op, "x", x);
  return {at::empty_symint(x.sym_sizes(), x.options().dtype(at::kChar)), at::empty({}, x.options().dtype(at::kFloat))};
}

Pair q8_quantize_meta(const at::Tensor& x, const OptTensor&, double) { return quantize_meta("q8_quantize", x); }

Pair q4_quantize_meta(const at::Tensor& x, const OptTensor&, double) { return quantize_meta("q4_quantize", x); }

kernels::AmaxRange amax_range(const char* op, std::int64_t num_bits, bool is_unsigned, bool narrow_range) {
  TORCH_CHECK_VALUE(num_bits >= 2 && num_bits <= 16, op, ": num_bits: expected 2 to 16, got ", num_bits);
  const float bound = std::ldexp(1.0f, static_cast<int>(num_bits) - 1 + (is_unsigned ? 1 : 0)) - 1;
  return {is_unsigned ? 0 : narrow_range ? -bound : -bound - 1, bound, is_unsigned};
}

Pair amax_quantize_real(const at::Tensor& x, const OptTensor& amax, std::int64_t num_bits, bool is_unsigned,
                        bool narrow_range) {
  const char* op = "amax_quantize";
  check_float(op, "x", x);
  TORCH_CHECK_VALUE(x.numel() > 0, op, ": x: expected at least one element, got ", x.sizes());
  TORCH_CHECK_VALUE(!amax.has_value() || (amax->numel() == 1 && (amax->dim() == 0 || amax->dim() == x.dim())), op,
                    ": amax: expected one element of rank 0 or ", x.dim(), ", got ",
                    amax.has_value() ? amax->sizes() : at::IntArrayRef());
  const kernels::AmaxRange range = amax_range(op, num_bits, is_unsigned, narrow_range);
  const auto [q, scale] = backend_of(op, x).quantizers.amax_quantize(op, x, amax, range);
  const at::DimVector ones(static_cast<std::size_t>(x.dim()), 1);
  return {q, scale.view(ones)};
}

Pair amax_quantize_meta(const at::Tensor& x, const OptTensor&, std::int64_t, bool, bool) {
  check_meta("amax_quantize", "x", x);
  const at::DimVector ones(static_cast<std::size_t>(x.dim()), 1);
  return {at::empty_symint(x.sym_sizes(), x.options()), at::empty(ones, x.options().dtype(at::kFloat))};
}

at::Tensor int8_grad_real(const at::Tensor& g) {
  check_float("int8_grad", "g", g);
  return int8_codes({g});
}

at::Tensor int8_grad_meta(const at::Tensor& g) { return at::empty_symint(g.sym_sizes(), g.options().dtype(at::kChar)); }

Pair binary_init_real(const at::Tensor& weight) {
  const char* op = "binary_init";
  check_float(op, "weight", weight);
  TORCH_CHECK_VALUE(weight.numel() > 0, op, ": weight: expected at least one element, got ", weight.sizes());
  return backend_of(op, weight).quantizers.binary_init(op, weight);
}

Pair binary_init_meta(const at::Tensor& weight) {
  return {at::empty_symint(weight.sym_sizes(), weight.options().dtype(at::kChar)),
          at::empty({}, weight.options().dtype(at::kFloat))};
}

void check_first_batch(const char* op, const at::Tensor& x, double c) {
  check_float(op, "x", x);
  TORCH_CHECK_VALUE(std::isfinite(c) && c > 0, op, ": c: expected a positive number, got ", c);
}

void init_scale_real(at::Tensor& scale_a, const at::Tensor& x, double c) {
  const char* op = "init_scale_";
  TORCH_CHECK_TYPE(scale_a.scalar_type() == at::kFloat, op, ": scale_a: expected float32, got ", scale_a.scalar_type());
  check_one_device(op, {x, scale_a});
  backend_of(op, x).quantizers.init_scale(op, scale_a, x, c, check_first_batch);
}

void init_scale_meta(at::Tensor& scale_a, const at::Tensor&, double) { check_meta("init_scale_", "scale_a", scale_a); }

}  // namespace

at::Tensor int8_codes(const Scaled& grad) {
  const char* op = "int8_grad";
  const at::Tensor& g = grad.values;
  if (g.numel() == 0) return at::empty(g.sizes(), g.options().dtype(at::kChar));
  return backend_of(op, g).quantizers.int8_codes(op, grad);
}

void check_eps(const char* op, double eps) {
  TORCH_CHECK_VALUE(std::isfinite(eps) && eps > 0, op, ": eps: expected a positive number, got ", eps);
}

void check_amax(const char* op, float amax) {
  TORCH_CHECK_VALUE(std::isfinite(amax) && amax >= 0, op, ": amax: expected a finite number >= 0, got ", amax);
}

Scale mean_scale(const char* op, const char* name, const at::Tensor& x, double c, float floor) {
  return backend_of(op, x).quantizers.mean_scale(op, name, x, c, floor);
}

at::Tensor quantize_codes(const char* op, const at::Tensor& x, const Scale& scale, float floor,
                          const CodeRange& range) {
  return backend_of(op, x).quantizers.quantize_codes(op, x, scale, floor, range);
}

void check_codes(const char* op, const char* name, const at::Tensor& codes, const CodeRange& range) {
  if (range.lo != -128) backend_of(op, codes).quantizers.check_codes(op, name, codes, range);
}

std::tuple<at::Tensor, at::Tensor> q8_quantize(const at::Tensor& x, const at::Tensor& scale, double eps) {
  static const auto op = find_op<Pair(const at::Tensor&, const OptTensor&, double)>("bie::q8_quantize");
  return op.call(x, none_if_undefined(scale), eps);
}

std::tuple<at::Tensor, at::Tensor> q4_quantize(const at::Tensor& x, const at::Tensor& scale, double eps) {
  static const auto op = find_op<Pair(const at::Tensor&, const OptTensor&, double)>("bie::q4_quantize");
  return op.call(x, none_if_undefined(scale), eps);
}

std::tuple<at::Tensor, at::Tensor> amax_quantize(const at::Tensor& x, const at::Tensor& amax, std::int64_t num_bits,
                                                 bool is_unsigned, bool narrow_range) {
  static const auto op =
      find_op<Pair(const at::Tensor&, const OptTensor&, std::int64_t, bool, bool)>("bie::amax_quantize");
  return op.call(x, none_if_undefined(amax), num_bits, is_unsigned, narrow_range);
}

at::Tensor int8_grad(const at::Tensor& g) {
  static const auto op = find_op<at::Tensor(const at::Tensor&)>("bie::int8_grad");
  return op.call(g);
}

std::tuple<at::Tensor, at::Tensor> binary_init(const at::Tensor& weight) {
  static const auto op = find_op<Pair(const at::Tensor&)>("bie::binary_init");
  return op.call(weight);
}

void init_scale_(const at::Tensor& scale_a, const at::Tensor& x, double c) {
  static const auto op = find_op<void(at::Tensor&, const at::Tensor&, double)>("bie::init_scale_");
  at::Tensor target = scale_a;
  op.call(target, x, c);
}

}  // namespace bie::ops

BIE_OPERATORS(m) {
  using namespace bie::ops;
  m.impl("q8_quantize", q8_quantize_real);
  m.impl("q4_quantize", q4_quantize_real);
  m.impl("amax_quantize", amax_quantize_real);
  m.impl("int8_grad", int8_grad_real);
  m.impl("binary_init", binary_init_real);
  m.impl("init_scale_", init_scale_real);
}

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  m.impl("q8_quantize", bie::ops::q8_quantize_meta);
  m.impl("q4_quantize", bie::ops::q4_quantize_meta);
  m.impl("amax_quantize", bie::ops::amax_quantize_meta);
  m.impl("int8_grad", bie::ops::int8_grad_meta);
  m.impl("binary_init", bie::ops::binary_init_meta);
  m.impl("init_scale_", bie::ops::init_scale_meta);
}
