#include "bie/ops/weight_rules.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <cmath>
#include <string>

#include "ops/dispatcher.h"
#include "ops/quantize/quantizers.h"

namespace bie::ops {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;

void check_bits(const char* op, std::int64_t bits) {
  TORCH_CHECK_VALUE(bits == 1 || bits == 4 || bits == 8, op, ": bits: expected 1, 4 or 8, got ", bits);
}

bool is_float(const at::Tensor& tensor) { return at::isFloatingType(tensor.scalar_type()); }

at::ScalarType packed_type(std::int64_t bits) { return bits == 1 ? at::kByte : at::kChar; }

/// Bytes of a packed row of k elements.
std::int64_t row_bytes(std::int64_t k, std::int64_t bits) { return (k * bits + 7) / 8; }

at::Tensor weight_scale_of(const at::Tensor& weight, std::int64_t bits, double eps) {
  check_bits("weight_scale", bits);
  const at::Tensor w = weight.detach();
  if (bits == 1) return w.abs().mean(at::kDouble).to(at::kFloat);
  if (bits == 8) return std::get<1>(q8_quantize(w));
  return std::get<1>(q4_quantize(w)).clamp_min(eps);
}

Pair codes_of(const at::Tensor& weight, std::int64_t bits, const OptTensor& scale, double eps) {
  const at::Tensor step = scale.has_value() ? *scale : weight_scale_of(weight, bits, eps);
  return bits == 8 ? q8_quantize(weight.detach(), step, eps) : q4_quantize(weight.detach(), step, eps);
}

Pair prepare(const at::Tensor& weight, std::int64_t bits, const OptTensor& scale, double eps) {
  check_bits("prepare_weight", bits);
  return bits == 1 ? binary_init(weight.detach()) : codes_of(weight, bits, scale, eps);
}

Pair pack(const at::Tensor& weight, std::int64_t bits, const OptTensor& scale, double eps) {
  const char* op = "pack_weight";
  check_bits(op, bits);
  TORCH_CHECK_VALUE(weight.dim() >= 2, op, ": weight: expected two axes or more, got ", weight.sizes());
  at::Tensor codes = weight.detach(),
             step = scale.has_value() ? *scale : at::ones({}, codes.options().dtype(at::kFloat));
  if (bits == 1 && is_float(weight)) step = weight_scale_of(weight, bits, eps);
  // The scale comes back, or NaN on CUDA where the weight is not finite.
  if (bits > 1 && is_float(weight)) std::tie(codes, step) = codes_of(weight, bits, scale, eps);
  if (bits == 1) codes = pack_signs(codes.flatten(1));
  if (bits == 4) codes = pack_int4(codes.reshape({weight.size(0), -1}));
  return {codes.view(packed_weight_shape(weight.sizes(), bits)), step};
}

std::vector<std::int64_t> packed_shape(at::IntArrayRef shape, std::int64_t bits) {
  check_bits("packed_weight_shape", bits);
  TORCH_CHECK_VALUE(shape.size() >= 2, "packed_weight_shape: the shape: expected two axes or more, got ", shape);
  if (bits == 8) return shape.vec();
  if (shape.size() == 4 && shape[1] * bits % 8 == 0) return {shape[0], shape[2], shape[3], shape[1] * bits / 8};
  return {shape[0], row_bytes(c10::multiply_integers(shape.slice(1)), bits)};
}

/// Layout of flat bytes in BITorch Engine's files. Of its classes only the CPU's ("columns") stores no scales.
const char* flat_layout(std::int64_t n, std::int64_t k, bool has_scales) {
  return !has_scales ? "columns" : k % 128 == 0 && n % 8 == 0 ? "btc" : "bstc";
}

at::Tensor read_packed(const at::Tensor& packed, at::IntArrayRef shape, std::int64_t bits, bool has_scales,
                       std::string_view name) {
  const std::vector<std::int64_t> ours = packed_shape(shape, bits);
  const std::int64_t n = shape[0], k = c10::multiply_integers(shape.slice(1)), bytes = row_bytes(k, bits);
  if (packed.scalar_type() == packed_type(bits)) {
    if (packed.sizes() == at::IntArrayRef(ours)) return packed.contiguous();
    if (shape.size() == 4 &&
        (packed.sizes() == at::IntArrayRef{n, bytes} || packed.sizes() == at::IntArrayRef{n * bytes}))
      return packed.reshape(ours).contiguous();
    if (shape.size() == 2 && bits == 1 && packed.dim() == 1 && packed.numel() * 8 == n * k) {
      try {
        return signs_from_layout(packed, n, k, flat_layout(n, k, has_scales));
      } catch (const c10::ValueError& error) {
        TORCH_CHECK_VALUE(false, name, " cannot be read: ", error.what_without_backtrace());
      }
    }
  }
  TORCH_CHECK_VALUE(false, name, ": expected ", at::IntArrayRef(ours), " of ", dtype_name(packed_type(bits)), ", got ",
                    packed.sizes(), " of ", dtype_name(packed.scalar_type()), ", no layout of a ", bits, "-bit weight ",
                    shape);
}

Pair split(const at::Tensor& weight) {
  const at::Tensor w = weight.detach();
  std::vector<std::int64_t> along(static_cast<std::size_t>(w.dim()), 1);
  along[0] = -1;
  const at::Tensor sizes = w.abs().flatten(1).mean(1, /*keepdim=*/false, at::kDouble);
  const at::Tensor scales = at::where(sizes > 0, sizes / sizes.mean(), 1.0).to(at::kFloat);
  return {w / scales.to(w.scalar_type()).view(along), scales};
}

void check_finite(const at::Tensor& tensor, at::ScalarType dtype, std::string_view name) {
  TORCH_CHECK_VALUE(all_finite(tensor.to(dtype)), name, " holds NaN or infinity in ", dtype_name(dtype));
}

void weight_entry(const at::Tensor& entry, at::IntArrayRef shape, std::int64_t bits, at::ScalarType dtype,
                  std::string_view name) {
  TORCH_CHECK_VALUE(entry.sizes() == shape && (is_float(entry) || entry.scalar_type() == at::kChar), name,
                    ": expected ", shape, " of int8 or a floating-point dtype, got ", entry.sizes(), " of ",
                    dtype_name(entry.scalar_type()));
  if (is_float(entry)) {
    check_finite(entry, dtype, name);
  } else if (bits == 4 && !entry.is_meta() && entry.numel() > 0) {
    const auto [least, most] = at::aminmax(entry);
    TORCH_CHECK_VALUE(least.item<int>() >= q4_range.lo && most.item<int>() <= q4_range.hi, name,
                      " holds codes outside [-8, 7]");
  }
}

void plain_entry(const at::Tensor& entry, at::IntArrayRef shape, at::ScalarType dtype, std::string_view name) {
  const bool floats = at::isFloatingType(dtype);
  TORCH_CHECK_VALUE(entry.sizes() == shape && (floats ? is_float(entry) : entry.scalar_type() == dtype), name,
                    ": expected ", shape, " of ", floats ? "a floating-point dtype" : dtype_name(dtype), ", got ",
                    entry.sizes(), " of ", dtype_name(entry.scalar_type()));
  if (floats) check_finite(entry, dtype, name);
}

at::Tensor scale_entry(const at::Tensor& entry, std::optional<double> least, std::string_view name) {
  TORCH_CHECK_VALUE(entry.numel() == 1 && is_float(entry), name, ": expected one floating-point number, got ",
                    entry.sizes(), " of ", dtype_name(entry.scalar_type()));
  const at::Tensor scale = entry.detach().reshape({}).to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  if (scale.is_meta()) return scale;
  const float value = scale.item<float>();
  TORCH_CHECK_VALUE(std::isfinite(value) && (!least.has_value() || value >= static_cast<float>(*least)), name, " is ",
                    entry.item<double>());
  return scale;
}

}  // namespace

std::string dtype_name(at::ScalarType type) { return std::string(c10::getDtypeNames(type).first); }

bool all_finite(const at::Tensor& tensor) {
  if (tensor.is_meta() || tensor.numel() == 0) return true;
  if (!tensor.is_cpu()) return at::isfinite(tensor).all().item<bool>();
  const auto [least, most] = at::aminmax(tensor.detach());  // both NaN where one element is
  return std::isfinite(least.item<double>()) && std::isfinite(most.item<double>());
}

at::Tensor weight_scale(const at::Tensor& weight, std::int64_t bits, double eps) {
  return weight_scale_of(weight, bits, eps);
}

Pair prepare_weight(const at::Tensor& weight, std::int64_t bits, const at::Tensor& scale, double eps) {
  return prepare(weight, bits, none_if_undefined(scale), eps);
}

Pair pack_weight(const at::Tensor& weight, std::int64_t bits, const at::Tensor& scale, double eps) {
  return pack(weight, bits, none_if_undefined(scale), eps);
}

std::vector<std::int64_t> packed_weight_shape(at::IntArrayRef shape, std::int64_t bits) {
  return packed_shape(shape, bits);
}

at::Tensor read_packed_weight(const at::Tensor& packed, at::IntArrayRef shape, std::int64_t bits, bool has_scales,
                              std::string_view name) {
  return read_packed(packed, shape, bits, has_scales, name);
}

Pair split_channels(const at::Tensor& weight) { return split(weight); }

void check_weight_entry(const at::Tensor& entry, at::IntArrayRef shape, std::int64_t bits, at::ScalarType dtype,
                        std::string_view name) {
  weight_entry(entry, shape, bits, dtype, name);
}

void check_entry(const at::Tensor& entry, at::IntArrayRef shape, at::ScalarType dtype, std::string_view name) {
  plain_entry(entry, shape, dtype, name);
}

at::Tensor check_scale_entry(const at::Tensor& entry, std::optional<double> least, std::string_view name) {
  return scale_entry(entry, least, name);
}

}  // namespace bie::ops

// Rules over other operators: graphs see those.
TORCH_LIBRARY_IMPL(bie, CompositeImplicitAutograd, m) {
  m.impl("weight_scale", bie::ops::weight_scale_of);
  m.impl("prepare_weight", bie::ops::prepare);
  m.impl("pack_weight", bie::ops::pack);
  m.impl("packed_weight_shape", bie::ops::packed_shape);
  m.impl("read_packed_weight", bie::ops::read_packed);
  m.impl("split_channels", bie::ops::split);
  m.impl("check_weight_entry", bie::ops::weight_entry);
  m.impl("check_entry", bie::ops::plain_entry);
  m.impl("check_scale_entry", bie::ops::scale_entry);
}
