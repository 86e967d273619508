#include "formats/gptq_zeros.h"

#include <utility>
#include <vector>

#include "bie/formats/error.h"

namespace bie::formats {
namespace {

/// Code i of a row of words of `bits`.
int code_of(const std::uint32_t* row, std::int64_t i, int bits) {
  const std::int64_t at = i * bits;
  std::uint64_t pair = row[at / 32];
  if (at % 32 + bits > 32) pair |= std::uint64_t{row[at / 32 + 1]} << 32;
  return static_cast<int>(pair >> at % 32 & ((1U << bits) - 1));
}

}  // namespace

Array equal_zeros(std::int64_t groups, std::int64_t n, int bits, int stored) {
  const std::int64_t row_words = (n * bits + 31) / 32;
  std::vector<std::uint32_t> row(static_cast<std::size_t>(row_words), 0);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t at = i * bits;
    const std::uint64_t pair = static_cast<std::uint64_t>(stored) << at % 32;
    row[static_cast<std::size_t>(at / 32)] |= static_cast<std::uint32_t>(pair);
    if (at % 32 + bits > 32) row[static_cast<std::size_t>(at / 32 + 1)] |= static_cast<std::uint32_t>(pair >> 32);
  }
  std::vector<std::uint8_t> bytes;
  const auto* const first = reinterpret_cast<const std::uint8_t*>(row.data());
  for (std::int64_t g = 0; g < groups; ++g) bytes.insert(bytes.end(), first, first + 4 * row_words);
  return array_of(Element::i32, {groups, row_words}, std::move(bytes));
}

std::string wrong_symmetry(const Array& qzeros, std::int64_t n, int bits, bool is_first_version) {
  const auto* const zeros = qzeros.data<std::uint32_t>();
  const std::int64_t row_words = qzeros.sizes[1];
  const int first = code_of(zeros, 0, bits), middle = 1 << (bits - 1);
  for (std::int64_t g = 0; g < qzeros.sizes[0]; ++g)
    for (std::int64_t i = 0; i < n; ++i)
      if (code_of(zeros + g * row_words, i, bits) != first) return "";
  const int is_read_as = first + (is_first_version ? 1 : 0);
  if (is_read_as == middle) return "";
  const bool is_other_version = first + (is_first_version ? 0 : 1) == middle;
  return joined("holds ", first, " everywhere, which ", is_first_version ? "version 1" : "version 2",
                " of the format reads as the zero point ", is_read_as,
                "; the configuration says sym, whose zero point is ", middle,
                is_other_version ? is_first_version ? ": the file is of checkpoint_format \"gptq_v2\" or not symmetric"
                                                    : ": the file is of checkpoint_format \"gptq\" or not symmetric"
                                 : "");
}

}  // namespace bie::formats
