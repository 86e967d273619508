// The byte orders of packed binary weights in checkpoints of BITorch Engine, to and from packed rows.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "bie/kernels/sign_layout.h"
#include "bie/ops.h"
#include "ops/backend/backend.h"
#include "ops/backend/packing.h"
#include "ops/checks.h"
#include "ops/dispatcher.h"
#include "ops/registration.h"

namespace bie::ops {
namespace {

constexpr std::int64_t bstc_rows = 32;

c10::SymInt round_up(const c10::SymInt& value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

struct Layout {
  std::string_view name;
  kernels::SignLayout order;
  std::int64_t row_unit, column_unit;  ///< n and k are multiples of these
  std::int64_t padded_rows;            ///< the layout holds n rounded up to this
};

constexpr Layout layouts[] = {
    {"btc", kernels::SignLayout::btc, 8, 128, 1},
    {"bstc", kernels::SignLayout::bstc, 1, 32, bstc_rows},
    {"columns", kernels::SignLayout::columns, 1, 8, 1},
};

const Layout& find_layout(const char* op, std::string_view name) {
  const auto* found =
      std::find_if(std::begin(layouts), std::end(layouts), [name](const Layout& l) { return l.name == name; });
  TORCH_CHECK_VALUE(found != std::end(layouts), op, ": layout: expected btc, bstc or columns, got \"", name, "\"");
  return *found;
}

void check_sizes(const char* op, const Layout& layout, const c10::SymInt& n, std::int64_t k) {
  TORCH_CHECK_VALUE(n >= 0 && k >= 0 && n % layout.row_unit == 0 && k % layout.column_unit == 0, op, ": n = ", n,
                    " and k = ", k, ", layout ", layout.name, " wants multiples of ", layout.row_unit, " and ",
                    layout.column_unit);
}

at::Tensor signs_from_layout_meta(const at::Tensor& bytes, std::int64_t n, std::int64_t k, std::string_view name) {
  const char* op = "signs_from_layout";
  const Layout& layout = find_layout(op, name);
  TORCH_CHECK_TYPE(bytes.scalar_type() == at::kByte, op, ": bytes: expected Byte, got ", bytes.scalar_type());
  check_sizes(op, layout, n, k);
  std::int64_t rows = 0;
  std::int64_t wanted = 0;
  TORCH_CHECK_VALUE(!__builtin_add_overflow(n, layout.padded_rows - 1, &rows) &&
                        !__builtin_mul_overflow(rows / layout.padded_rows * layout.padded_rows, k / 8, &wanted),
                    op, ": n = ", n, " and k = ", k, ", whose product overflows");
  const std::int64_t kept = n * (k / 8);
  const bool is_flat = bytes.dim() == 1;
  TORCH_CHECK_VALUE(!is_flat || wanted == kept || bytes.sym_numel() != kept, op, ": bytes is [", kept, "], n = ", n,
                    " and k = ", k, " take ", wanted, " in layout ", layout.name,
                    ": BITorch Engine cut the tail off when it saved this weight, and it cannot be recovered");
  TORCH_CHECK_VALUE(is_flat && bytes.sym_numel() == wanted, op, ": bytes is ", bytes.sym_sizes(), ", n = ", n,
                    " and k = ", k, " take [", wanted, "] in layout ", layout.name);
  return at::empty({n, k / 8}, bytes.options());
}

at::Tensor signs_from_layout_real(const at::Tensor& bytes, std::int64_t n, std::int64_t k, std::string_view name) {
  const char* op = "signs_from_layout";
  at::Tensor out = signs_from_layout_meta(bytes, n, k, name);
  const at::Tensor dense = bytes.contiguous();
  const std::int64_t row_bytes = k / 8;
  const kernels::SignRows shape{find_layout(op, name).order, n, row_bytes,
                                row_bytes == 0 ? 0 : dense.numel() / row_bytes};
  backend_of(op, bytes).packing.signs_from_layout(op, shape, dense, out);
  return out;
}

at::Tensor signs_to_layout_meta(const at::Tensor& packed, std::int64_t k, std::string_view name) {
  const char* op = "signs_to_layout";
  const Layout& layout = find_layout(op, name);
  TORCH_CHECK_TYPE(packed.scalar_type() == at::kByte, op, ": packed: expected Byte, got ", packed.scalar_type());
  TORCH_CHECK_VALUE(packed.dim() == 2, op, ": packed: expected [n, ceil(k/8)], got ", packed.sym_sizes());
  check_sizes(op, layout, packed.sym_size(0), k);
  TORCH_CHECK_VALUE(packed.sym_size(1) == k / 8, op, ": packed is ", packed.sym_sizes(), ", k = ", k,
                    " wants a last axis of ", k / 8);
  return at::empty_symint({round_up(packed.sym_size(0), layout.padded_rows) * (k / 8)}, packed.options());
}

at::Tensor signs_to_layout_real(const at::Tensor& packed, std::int64_t k, std::string_view name) {
  const char* op = "signs_to_layout";
  at::Tensor out = signs_to_layout_meta(packed, k, name);
  const at::Tensor dense = packed.contiguous();
  const std::int64_t row_bytes = k / 8;
  const kernels::SignRows shape{find_layout(op, name).order, packed.size(0), row_bytes,
                                row_bytes == 0 ? 0 : out.numel() / row_bytes};
  backend_of(op, packed).packing.signs_to_layout(op, shape, dense, out);
  return out;
}

}  // namespace

at::Tensor signs_from_layout(const at::Tensor& bytes, std::int64_t n, std::int64_t k, std::string_view layout) {
  static const auto op =
      find_op<at::Tensor(const at::Tensor&, std::int64_t, std::int64_t, std::string_view)>("bie::signs_from_layout");
  return op.call(bytes, n, k, layout);
}

at::Tensor signs_to_layout(const at::Tensor& packed, std::int64_t k, std::string_view layout) {
  static const auto op = find_op<at::Tensor(const at::Tensor&, std::int64_t, std::string_view)>("bie::signs_to_layout");
  return op.call(packed, k, layout);
}

}  // namespace bie::ops

BIE_OPERATORS(m) {
  using namespace bie::ops;
  m.impl("signs_from_layout", signs_from_layout_real);
  m.impl("signs_to_layout", signs_to_layout_real);
}

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  m.impl("signs_from_layout", bie::ops::signs_from_layout_meta);
  m.impl("signs_to_layout", bie::ops::signs_to_layout_meta);
}
