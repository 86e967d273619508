// BPE by merges: of bytes, or of characters.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bie/text/vocabulary.h"
#include "text/flat_tables.h"
#include "text/piece_encoder.h"

namespace bie::text {

struct MergeOptions {
  bool of_bytes = true;
  bool whole_first = false;             ///< a piece that is a token becomes it, whatever the merges
  bool byte_fallback = false;           ///< of characters: one that is no token becomes the tokens of its bytes
  bool fuses_unknown = false;           ///< neighbours that are unknown are one token
  bool last_counts = false;             ///< of merges that stand there twice
  std::optional<std::int32_t> unknown;  ///< of a byte or character that is no token; none: it is left out
};

class Merges : public PieceEncoder {
 public:
  /// Keeps views into the texts of tokens, which must outlive it: their bytes, or the names.
  /// @throws formats::Error, one sentence: a token that occurs twice, a merge of what is no token.
  Merges(const std::vector<std::string>& texts, const Vocabulary& vocabulary, const std::vector<std::string>& names,
         const MergeOptions& options);

  void encode(std::string_view piece, std::vector<std::int32_t>* tokens) const override;

 private:
  struct Symbol {
    std::int32_t token;
    std::int64_t before, after;  // -1: none
  };
  void read_merges(const std::vector<std::string>& texts, const Vocabulary& vocabulary, const TokensByText& token_of);
  void read_bytes_of_fallback(const std::vector<std::string>& names);
  struct Work;
  void encode_part(std::string_view part, Work* work, std::vector<std::int32_t>* tokens) const;
  void add_bytes(std::string_view piece, std::vector<Symbol>* symbols) const;
  void add_characters(std::string_view piece, std::vector<Symbol>* symbols) const;

  MergeOptions options_;
  bool joins_words_ = false;  ///< of characters: whether a text is one part, not a part a word with U+2581 before it
  TokensByText whole_;        ///< tokens of texts by their bytes or names
  MergesByPair merges_;
  std::array<std::int32_t, 256> byte_token_{};
};

}  // namespace bie::text
