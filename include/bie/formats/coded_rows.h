// Rows of low-bit codes in groups, as files hold them and as weight-only layers take them.
#pragma once

#include <cstdint>
#include <vector>

namespace bie::formats {

/// Words of 32 bits that so many codes fill, the last one perhaps in part.
inline std::int64_t words_for(std::int64_t codes, int bits) { return (codes * bits + 31) / 32; }

/// A matrix of unsigned codes q. In float32, with one rounding an operation,
///     W[r, c] = s * q - z       where `zeros` holds one z for each scale
///     W[r, c] = s * (q - zero)  where it is empty
/// s = scales[r, c / group], z = zeros[r, c / group].
/// Source: docs/spec/weight-only.md.
struct CodedRows {
  std::int64_t rows = 0, columns = 0;
  int bits = 0;                      ///< 1 ... 6 or 8
  std::int64_t group = 0;            ///< columns that share a scale; the last group of a row may be shorter
  std::vector<std::uint32_t> words;  ///< [rows, row_words()]: codes of a row are dense, the first in the lowest bits
  std::vector<float> scales, zeros;  ///< [rows, groups()]
  int zero = 0;                      ///< 1 ... 2^bits

  std::int64_t row_words() const { return words_for(columns, bits); }
  std::int64_t groups() const { return (columns + group - 1) / group; }
};

/// Puts a code where 0 is: codes of one row, `words` being the row's.
inline void put_code(std::uint32_t* words, int bits, std::int64_t column, std::uint32_t code) {
  const std::int64_t bit = column * bits;
  std::uint32_t* const word = words + bit / 32;
  const int shift = static_cast<int>(bit % 32);
  word[0] |= code << shift;
  if (shift + bits > 32) word[1] |= code >> (32 - shift);
}

/// The code of a column.
inline std::uint32_t code_at(const std::uint32_t* words, int bits, std::int64_t column) {
  const std::int64_t bit = column * bits;
  const std::uint32_t* const word = words + bit / 32;
  const int shift = static_cast<int>(bit % 32);
  std::uint32_t code = word[0] >> shift;
  if (shift + bits > 32) code |= word[1] << (32 - shift);
  return code & ((1u << bits) - 1);
}

}  // namespace bie::formats
