// WordPiece: a word becomes its longest beginning that is a token, and so on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bie/text/vocabulary.h"
#include "text/piece_encoder.h"
#include "text/trie.h"

namespace bie::text {

struct WordPieceOptions {
  std::string first_prefix;         ///< of tokens that begin a word
  std::string later_prefix = "##";  ///< of tokens inside of one
  std::size_t longest_word = 100;   ///< characters; longer words are unknown
  std::optional<std::int32_t> unknown;
};

/// Source: Devlin et al. 2018, WordpieceTokenizer.
class WordPieces : public PieceEncoder {
 public:
  /// @throws formats::Error, one sentence: a token that occurs twice, words that are too long.
  WordPieces(const std::vector<std::string>& tokens, const std::vector<Vocabulary::Kind>& kinds,
             const WordPieceOptions& options);

  /// The piece is one word. A word with a part that is no token is the unknown token.
  void encode(std::string_view word, std::vector<std::int32_t>* tokens) const override;

 private:
  WordPieceOptions options_;
  Trie trie_;
  std::vector<std::int32_t> token_of_;  ///< of nodes
  std::uint32_t first_ = 0, later_ = 0;
};

}  // namespace bie::text
