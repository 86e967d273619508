// The definition of sign and int4 packing: one dull loop each.
#include "bie/kernels/packing.h"

#include "bie/kernels/sign_layout.h"
#include "kernels/check.h"
#include "kernels/reference/reference.h"

namespace bie::kernels::reference {
namespace {

Status pack_signs(const RowsShape& shape, const void* x, Dtype dtype, std::int64_t row_stride, const float* bias,
                  std::uint8_t* packed, const Parallel&) {
  if (check_rows(shape) != Status::ok) return Status::bad_shape;
  if (!is_float(dtype) && dtype != Dtype::s8) return Status::bad_dtype;
  const std::int64_t bytes = row_bytes(Dtype::bits, shape.k);
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::int64_t j = 0; j < bytes; ++j) packed[row * bytes + j] = 0;
    for (std::int64_t i = 0; i < shape.k; ++i) {
      const float value = load_float(static_cast<const char*>(x) + row * row_stride, dtype, i);
      const float xs = value + (bias == nullptr || dtype == Dtype::s8 ? 0.0f : bias[i]);
      if (xs >= 0) packed[row * bytes + i / 8] |= static_cast<std::uint8_t>(1 << (i % 8));
    }
  }
  return Status::ok;
}

Status pack_int4(const RowsShape& shape, const std::int8_t* codes, std::uint8_t* packed, const Parallel&) {
  if (check_rows(shape) != Status::ok) return Status::bad_shape;
  const std::int64_t bytes = row_bytes(Dtype::s4, shape.k);
  for (std::int64_t row = 0; row < shape.rows; ++row)
    for (std::int64_t j = 0; j < bytes; ++j) {
      const int high = codes[row * shape.k + 2 * j];
      const int low = 2 * j + 1 < shape.k ? codes[row * shape.k + 2 * j + 1] : 0;
      packed[row * bytes + j] = static_cast<std::uint8_t>(((high & 15) << 4) | (low & 15));
    }
  return Status::ok;
}

}  // namespace

const SignPackKernel sign_pack = {"sign_pack_reference", Isa::reference, nullptr, pack_signs};
const Int4PackKernel int4_pack = {"int4_pack_reference", Isa::reference, nullptr, pack_int4};

}  // namespace bie::kernels::reference

namespace bie::kernels {

void unpack_signs(const RowsShape& shape, const std::uint8_t* packed, std::int8_t* signs, const Parallel& parallel) {
  if (shape.k <= 0) return;
  const std::int64_t bytes = row_bytes(Dtype::bits, shape.k);
  parallel_for(parallel, shape.rows, 1 + 65536 / (shape.k + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t i = 0; i < shape.k; ++i)
        signs[row * shape.k + i] = static_cast<std::int8_t>(reference::sign_at(packed + row * bytes, i));
  });
}

void unpack_int4(const RowsShape& shape, const std::uint8_t* packed, std::int8_t* codes, const Parallel& parallel) {
  if (shape.k <= 0) return;
  const std::int64_t bytes = row_bytes(Dtype::s4, shape.k);
  parallel_for(parallel, shape.rows, 1 + 65536 / (shape.k + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t i = 0; i < shape.k; ++i)
        codes[row * shape.k + i] = static_cast<std::int8_t>(reference::s4_at(packed + row * bytes, i));
  });
}

namespace {

/// body(row, byte) of rows [0, rows).
template <class Body>
Status for_row_bytes(std::int64_t rows, std::int64_t row_bytes, const Parallel& parallel, const Body& body) {
  if (rows < 0 || row_bytes < 0) return Status::bad_shape;
  parallel_for(parallel, rows, 1 + 65536 / (row_bytes + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t byte = 0; byte < row_bytes; ++byte) body(row, byte);
  });
  return Status::ok;
}

}  // namespace

Status signs_from_layout(const SignRows& s, const std::uint8_t* bytes, std::uint8_t* packed, const Parallel& parallel) {
  return for_row_bytes(s.n, s.row_bytes, parallel, [&](std::int64_t row, std::int64_t byte) {
    packed[row * s.row_bytes + byte] =
        turn_bits(s.layout, bytes[place_in(s.layout, row, byte, s.layout_rows, s.row_bytes)]);
  });
}

Status signs_to_layout(const SignRows& s, const std::uint8_t* packed, std::uint8_t* bytes, const Parallel& parallel) {
  return for_row_bytes(s.layout_rows, s.row_bytes, parallel, [&](std::int64_t row, std::int64_t byte) {
    bytes[place_in(s.layout, row, byte, s.layout_rows, s.row_bytes)] =
        row < s.n ? turn_bits(s.layout, packed[row * s.row_bytes + byte]) : std::uint8_t{0};
  });
}

}  // namespace bie::kernels
