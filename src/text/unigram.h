// Unigram: of all ways to write a text as pieces the one with the largest sum of scores.
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
#include "text/trie.h"

namespace bie::text {

struct UnigramOptions {
  /// As SentencePiece 0.2.3 computes: sums are rounded to float32, and one beyond 100,000 is subtracted from all;
  /// tokens of users are worth more than any piece, unknown tokens and those of bytes are none. Else as Hugging Face's
  /// tokenizers does: in double, and all tokens of the model but control tokens are pieces.
  bool is_sentencepiece = true;
  bool byte_fallback = false;  ///< a character that is no piece becomes the tokens of its bytes
  std::optional<std::int32_t> unknown;
};

/// Source: Kudo 2018, "Subword Regularization"; the search of Viterbi.
class Unigram : public PieceEncoder {
 public:
  /// Tokens behind the last score, which tokenizers has added, are no pieces.
  /// @throws formats::Error, one sentence: another number of scores, a score that is no number, a piece twice, a byte
  /// that is none.
  Unigram(const std::vector<std::string>& tokens, const std::vector<Vocabulary::Kind>& kinds,
          const std::vector<double>& scores, const UnigramOptions& options);

  /// Each position's best way is kept; of equal sums the one whose last piece is the longest. A character that is no
  /// piece costs the least score less 10.
  void encode(std::string_view text, std::vector<std::int32_t>* tokens) const override;

 private:
  struct Node {
    std::uint32_t fallback = 0;   ///< the longest other node whose text ends this one's
    std::uint32_t ends_here = 0;  ///< this node or the next one on the way of fallbacks that is a piece; 0: none
    std::uint32_t size = 0;       ///< bytes
    std::int32_t token = -1;
  };
  struct Best {
    double sum = 0;
    std::uint32_t size = 0;  ///< bytes of the last piece
    std::int32_t token = -1;
  };
  void add_pieces(const std::vector<std::string>& tokens, const std::vector<Vocabulary::Kind>& kinds,
                  const std::vector<double>& scores);
  void link();
  class Target;
  double rounded(double sum) const;
  std::vector<Best> best_ways(std::string_view text) const;
  void append(std::string_view part, std::int32_t token, std::vector<std::int32_t>* tokens) const;

  UnigramOptions options_;
  Trie trie_;
  std::vector<Node> nodes_;
  std::vector<double> scores_;  ///< of tokens
  std::array<std::int32_t, 256> byte_token_{};
  double unknown_score_ = 0;
};

}  // namespace bie::text
