// What turns a piece of a text into tokens: BPE, Unigram or WordPiece.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace bie::text {

class PieceEncoder {
 public:
  virtual ~PieceEncoder() = default;
  /// Appends the tokens of a piece, which may hold bytes that are no UTF-8. Time is n log n of its length.
  virtual void encode(std::string_view piece, std::vector<std::int32_t>* tokens) const = 0;
};

}  // namespace bie::text
