// Merges of SentencePiece's BPE: characters become pieces by their scores, what is no piece becomes bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bie/text/vocabulary.h"
#include "text/piece_encoder.h"

namespace bie::text {

/// U+2581, which stands for a space in the names of pieces.
inline constexpr std::string_view space_mark = "\xe2\x96\x81";

/// The text with every `what`, which is not empty, replaced.
std::string replaced(std::string_view text, std::string_view what, std::string_view with);
/// Whether a mark stands behind another character in the name of a piece: pieces then go from one word to the next.
bool has_inner_mark(std::string_view name);
/// Calls take(part) for the parts of a text that begin with its marks, in their order.
template <class Take>
void for_each_marked(std::string_view text, const Take& take) {
  std::size_t from = 0;
  for (std::size_t at = text.find(space_mark); at != std::string_view::npos;) {
    if (at > from) {
      take(text.substr(from, at - from));
      from = at;
    }
    while (text.substr(at, space_mark.size()) == space_mark) at += space_mark.size();
    at = text.find(space_mark, at);
  }
  if (from < text.size()) take(text.substr(from));
}

/// The text with every space as that mark, and the reverse.
std::string with_marks(std::string_view text);
std::string with_spaces(std::string_view text);

class SentencePieces : public PieceEncoder {
 public:
  /// Keeps views into the vocabulary's tokens, which must outlive it.
  /// @throws formats::Error, one sentence: another number of scores, a score that is NaN, a piece that occurs twice, a
  /// byte that is none.
  SentencePieces(const std::vector<std::string>& tokens, const std::vector<Vocabulary::Kind>& kinds,
                 const std::vector<double>& scores);

  /// Appends the tokens of a text with marks. Of all neighbours whose joint is a piece the one with the largest score
  /// is joined first, of equals the leftmost; time is n log n. Characters that are no piece become their bytes, and the
  /// unknown piece where a byte has none.
  void encode(std::string_view text, std::vector<std::int32_t>* tokens) const override;

  /// The byte of a token "<0x0A>"; nothing for another name.
  static std::optional<char> fallback_byte(std::string_view name);
  /// @throws formats::Error for another name.
  static char byte_of(std::string_view name);

 private:
  struct Piece {
    double score;
    std::int32_t token;
  };
  struct Work;
  void encode_part(std::string_view text, Work* work, std::vector<std::int32_t>* tokens) const;

  bool joins_words_ = false;
  std::unordered_map<std::string_view, Piece> pieces_;
  std::array<std::int32_t, 256> byte_token_{};
  std::int32_t unknown_;  ///< -1: none
};

}  // namespace bie::text
