// Sign and int4 packing of the last axis.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "bie/ops.h"
#include "ops/backend/backend.h"
#include "ops/backend/packing.h"
#include "ops/checks.h"
#include "ops/dispatcher.h"
#include "ops/registration.h"

namespace bie::ops {
namespace {

/// Shape of x with its last axis replaced, allocated like x.
at::Tensor empty_last(const at::Tensor& x, const c10::SymInt& last, at::ScalarType type) {
  c10::SymDimVector sizes(x.sym_sizes());
  sizes.back() = last;
  return at::empty_symint(sizes, x.options().dtype(type));
}

void check_axis(const char* op, const char* name, const at::Tensor& x) {
  TORCH_CHECK_VALUE(x.dim() >= 1, op, ": ", name, ": expected at least one axis, got a 0-dimensional tensor");
}

at::Tensor empty_signs(const at::Tensor& x) {
  check_axis("pack_signs", "x", x);
  return empty_last(x, (x.sym_size(-1) + 7) / 8, at::kByte);
}

at::Tensor pack_signs_meta(const at::Tensor& x, const OptTensor&) {
  check_meta("pack_signs", "x", x);
  return empty_signs(x);
}

at::Tensor pack_signs_real(const at::Tensor& x, const OptTensor& bias) {
  const char* op = "pack_signs";
  const kernels::Dtype dtype = kernel_dtype(op, "x", x);
  check_one_device(op, {x, value_or_none(bias)});
  at::Tensor out = empty_signs(x);
  const std::int64_t k = x.size(-1);
  TORCH_CHECK_TYPE(!bias.has_value() || kernels::is_float(dtype), op, ": x is int8 and takes no bias");
  const at::Tensor b = float_bias(op, value_or_none(bias), k);
  const Rows rows = rows_of(x);
  const kernels::RowsShape shape{rows.count, k};
  backend_of(op, x).packing.pack_signs(op, shape, rows, b, out);
  return out;
}

void check_packed(const char* op, const at::Tensor& packed, at::ScalarType type, std::int64_t k,
                  std::int64_t per_byte) {
  check_axis(op, "packed", packed);
  TORCH_CHECK_TYPE(packed.scalar_type() == type, op, ": packed: expected ", type, ", got ", packed.scalar_type());
  TORCH_CHECK_VALUE(k >= 0 && packed.sym_size(-1) == (k + per_byte - 1) / per_byte, op, ": packed is ",
                    packed.sym_sizes(), ", k = ", k, " wants a last axis of ", (k + per_byte - 1) / per_byte);
}

at::Tensor unpack_signs_meta(const at::Tensor& packed, std::int64_t k) {
  check_packed("unpack_signs", packed, at::kByte, k, 8);
  return empty_last(packed, k, at::kChar);
}

at::Tensor unpack_signs_real(const at::Tensor& packed, std::int64_t k) {
  at::Tensor out = unpack_signs_meta(packed, k);
  if (out.numel() == 0) return out;
  const at::Tensor dense = packed.contiguous();
  backend_of("unpack_signs", packed).packing.unpack_signs("unpack_signs", {out.numel() / k, k}, dense, out);
  return out;
}

at::Tensor pack_int4_meta(const at::Tensor& codes) {
  check_axis("pack_int4", "codes", codes);
  TORCH_CHECK_TYPE(codes.scalar_type() == at::kChar, "pack_int4: codes: expected int8, got ", codes.scalar_type());
  return empty_last(codes, (codes.sym_size(-1) + 1) / 2, at::kChar);
}

at::Tensor pack_int4_real(const at::Tensor& codes) {
  const char* op = "pack_int4";
  at::Tensor out = pack_int4_meta(codes);
  const at::Tensor dense = codes.contiguous();
  const std::int64_t k = codes.size(-1);
  const kernels::RowsShape shape{k == 0 ? 0 : codes.numel() / k, k};
  backend_of(op, codes).packing.pack_int4(op, shape, dense, out);
  return out;
}

at::Tensor unpack_int4_meta(const at::Tensor& packed, std::int64_t k) {
  check_packed("unpack_int4", packed, at::kChar, k, 2);
  return empty_last(packed, k, at::kChar);
}

at::Tensor unpack_int4_real(const at::Tensor& packed, std::int64_t k) {
  at::Tensor out = unpack_int4_meta(packed, k);
  if (out.numel() == 0) return out;
  const at::Tensor dense = packed.contiguous();
  backend_of("unpack_int4", packed).packing.unpack_int4("unpack_int4", {out.numel() / k, k}, dense, out);
  return out;
}

}  // namespace

at::Tensor pack_signs(const at::Tensor& x, const at::Tensor& bias) {
  static const auto op = find_op<at::Tensor(const at::Tensor&, const OptTensor&)>("bie::pack_signs");
  return op.call(x, none_if_undefined(bias));
}

at::Tensor unpack_signs(const at::Tensor& packed, std::int64_t k) {
  static const auto op = find_op<at::Tensor(const at::Tensor&, std::int64_t)>("bie::unpack_signs");
  return op.call(packed, k);
}

at::Tensor pack_int4(const at::Tensor& codes) {
  static const auto op = find_op<at::Tensor(const at::Tensor&)>("bie::pack_int4");
  return op.call(codes);
}

at::Tensor unpack_int4(const at::Tensor& packed, std::int64_t k) {
  static const auto op = find_op<at::Tensor(const at::Tensor&, std::int64_t)>("bie::unpack_int4");
  return op.call(packed, k);
}

}  // namespace bie::ops

BIE_OPERATORS(m) {
  using namespace bie::ops;
  m.impl("pack_signs", pack_signs_real);
  m.impl("unpack_signs", unpack_signs_real);
  m.impl("pack_int4", pack_int4_real);
  m.impl("unpack_int4", unpack_int4_real);
}

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  m.impl("pack_signs", bie::ops::pack_signs_meta);
  m.impl("unpack_signs", bie::ops::unpack_signs_meta);
  m.impl("pack_int4", bie::ops::pack_int4_meta);
  m.impl("unpack_int4", bie::ops::unpack_int4_meta);
}
