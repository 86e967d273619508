#include "llm/folder/coded_arrays.h"

#include <algorithm>

#include "bie/formats/coded_rows.h"
#include "bie/formats/group_types.h"
#include "bie/kernels/shared_rows.h"

namespace bie::llm::folder {
namespace {

using formats::words_for;

/// The words of a row's codes; what is left of the last one stays as it is.
void put_row(const CodedBlocks& of, std::int64_t row, std::uint32_t* words) {
  const std::int64_t bytes = of.type->bytes - formats::group_head_bytes;
  auto* const to = reinterpret_cast<std::uint8_t*>(words);
  for (std::int64_t g = 0; g < of.groups(); ++g)
    std::copy_n(of.block(row, g) + formats::group_head_bytes, bytes, to + g * bytes);
}

}  // namespace

const std::uint8_t* CodedBlocks::block(std::int64_t row, std::int64_t group) const {
  const std::int64_t stands = order.empty() ? row : order[static_cast<std::size_t>(row)];
  return bytes->data + (stands * groups() + group) * type->bytes;
}

std::vector<std::int64_t> word_sizes(const CodedBlocks& of, bool is_table) {
  const std::int64_t words = words_for(of.k, of.type->bits);
  return is_table ? std::vector{of.n, words} : std::vector{words, of.n};
}

std::vector<std::uint32_t> words_of(const CodedBlocks& of, bool is_table, const kernels::Parallel& parallel) {
  const std::int64_t words = words_for(of.k, of.type->bits);
  std::vector<std::uint32_t> result(static_cast<std::size_t>(words * of.n));
  constexpr std::int64_t together = 16;  // a line of the cache of each row of words
  kernels::share_rows(parallel, of.n, together, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::uint32_t> own(static_cast<std::size_t>(words));
    for (std::int64_t j = begin; j < end; ++j) {
      put_row(of, j, is_table ? result.data() + j * words : own.data());
      if (!is_table)
        for (std::int64_t w = 0; w < words; ++w)
          result[static_cast<std::size_t>(w * of.n + j)] = own[static_cast<std::size_t>(w)];
    }
  });
  return result;
}

std::vector<std::uint16_t> numbers_of(const CodedBlocks& of, GroupNumber which, bool is_table) {
  std::vector<std::uint16_t> numbers(static_cast<std::size_t>(of.n * of.groups()));
  for (std::int64_t j = 0; j < of.n; ++j)
    for (std::int64_t g = 0; g < of.groups(); ++g) {
      const std::uint8_t* const from = of.block(j, g) + (which == GroupNumber::zero ? 2 : 0);
      numbers[static_cast<std::size_t>(is_table ? j * of.groups() + g : g * of.n + j)] =
          static_cast<std::uint16_t>(from[0] | from[1] << 8);
    }
  return numbers;
}

std::vector<std::uint32_t> packed_zeros_of(const CodedBlocks& of) {
  const std::int64_t words = words_for(of.n, of.type->bits);
  std::vector<std::uint32_t> result(static_cast<std::size_t>(words * of.groups()));
  for (std::int64_t g = 0; g < of.groups(); ++g)
    for (std::int64_t j = 0; j < of.n; ++j)
      formats::put_code(result.data() + g * words, of.type->bits, j,
                        static_cast<std::uint32_t>(formats::whole_zero_at(of.block(j, g)) - 1));
  return result;
}

}  // namespace bie::llm::folder
