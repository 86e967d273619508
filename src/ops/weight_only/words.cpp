#include "ops/weight_only/words.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include "bie/ops.h"
#include "ops/checks.h"
#include "ops/dispatcher.h"
#include "ops/registration.h"

namespace bie::ops {
namespace {

/// Shaped to be broadcast along axis `dim` of a matrix.
at::Tensor along(const at::Tensor& t, std::int64_t dim) { return dim == 0 ? t.unsqueeze(1) : t.unsqueeze(0); }

void check(const char* op, const char* name, const at::Tensor& t, std::int64_t bits, std::int64_t dim) {
  TORCH_CHECK_TYPE(t.scalar_type() == at::kInt, op, ": ", name, ": expected int32, got ", t.scalar_type());
  TORCH_CHECK_VALUE(t.dim() == 2, op, ": ", name, ": expected a matrix, got ", t.sym_sizes());
  TORCH_CHECK_VALUE(bits >= 1 && bits <= 8, op, ": bits: expected 1 ... 8, got ", bits);
  TORCH_CHECK_VALUE(dim == 0 || dim == 1, op, ": dim: expected 0 or 1, got ", dim);
}

at::Tensor unpack_words_any(const at::Tensor& words, std::int64_t bits, std::int64_t size, std::int64_t dim) {
  const char* op = "unpack_words";
  check(op, "words", words, bits, dim);
  TORCH_CHECK_VALUE(size >= 0 && words.sym_size(dim) == (size * bits + 31) / 32, op, ": words: expected ",
                    (size * bits + 31) / 32, " on axis ", dim, " for ", size, " codes, got ", words.sym_sizes());
  return unpacked_words(words, bits, size, dim);
}

at::Tensor pack_words_any(const at::Tensor& codes, std::int64_t bits, std::int64_t dim) {
  check("pack_words", "codes", codes, bits, dim);
  return packed_words(codes, bits, dim);
}

}  // namespace

at::Tensor unpacked_words(const at::Tensor& words, std::int64_t bits, std::int64_t size, std::int64_t dim) {
  const at::Tensor bit = at::arange(size, words.options().dtype(at::kLong)) * bits;
  const at::Tensor first = bit.div(32, "floor"), shift = along(bit.remainder(32), dim);
  const std::int64_t mask = (std::int64_t{1} << bits) - 1;
  const at::Tensor low = words.index_select(dim, first).to(at::kLong).bitwise_and(0xffffffff);
  if (32 % bits == 0) return low.bitwise_right_shift(shift).bitwise_and(mask).to(at::kInt);
  const at::Tensor next = (first + 1).clamp_max(words.size(dim) - 1);
  const at::Tensor high = words.index_select(dim, next).to(at::kLong).bitwise_left_shift(32);
  return low.bitwise_or(high).bitwise_right_shift(shift).bitwise_and(mask).to(at::kInt);
}

at::Tensor packed_words(const at::Tensor& codes, std::int64_t bits, std::int64_t dim) {
  const std::int64_t size = codes.size(dim), count = (size * bits + 31) / 32;
  std::vector<std::int64_t> sizes = codes.sizes().vec();
  sizes[static_cast<std::size_t>(dim)] = count + 1;
  const at::Tensor bit = at::arange(size, codes.options().dtype(at::kLong)) * bits;
  const at::Tensor first = bit.div(32, "floor"), shift = along(bit.remainder(32), dim);
  const at::Tensor at = codes.to(at::kLong).bitwise_and((std::int64_t{1} << bits) - 1).bitwise_left_shift(shift);
  // Codes do not overlap, so a sum puts them together.
  at::Tensor sum = at::zeros(sizes, codes.options().dtype(at::kLong));
  sum.index_add_(dim, first, at.bitwise_and(0xffffffff));
  sum.index_add_(dim, first + 1, at.bitwise_right_shift(32));
  return sum.narrow(dim, 0, count).to(at::kInt).contiguous();
}

at::Tensor unpack_words(const at::Tensor& words, std::int64_t bits, std::int64_t size, std::int64_t dim) {
  static const auto op =
      find_op<at::Tensor(const at::Tensor&, std::int64_t, std::int64_t, std::int64_t)>("bie::unpack_words");
  return op.call(words, bits, size, dim);
}

at::Tensor pack_words(const at::Tensor& codes, std::int64_t bits, std::int64_t dim) {
  static const auto op = find_op<at::Tensor(const at::Tensor&, std::int64_t, std::int64_t)>("bie::pack_words");
  return op.call(codes, bits, dim);
}

}  // namespace bie::ops

BIE_OPERATORS(m) {
  m.impl("unpack_words", bie::ops::unpack_words_any);
  m.impl("pack_words", bie::ops::pack_words_any);
}

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  m.impl("unpack_words", bie::ops::unpack_words_any);
  m.impl("pack_words", bie::ops::pack_words_any);
}
