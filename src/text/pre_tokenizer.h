// How a text is cut into pieces before a model turns each of them into tokens.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace bie::text {

/// A part of a text; `is_first` where nothing of the text lies before it.
struct Piece {
  std::string_view text;
  bool is_first;
};

class PreTokenizer {
 public:
  using Take = std::function<void(Piece)>;
  virtual ~PreTokenizer() = default;
  /// Calls take(piece) for all pieces in their order; none is empty. The piece is valid UTF-8.
  virtual void split(Piece piece, const Take& take) const = 0;
};

/// Cuts by patterns one after the other, each at its matches.
std::unique_ptr<PreTokenizer> pattern_pre_tokenizer(const std::vector<std::string>& patterns);

/// What a tokenizer.json calls "pre_tokenizer"; null: texts are not cut.
/// @param is_byte_level  whether its pieces are bytes for a byte-level model. (Characters that stand for bytes are made
///                       only for steps that come behind ByteLevel.)
/// @throws formats::Error naming a step that is not read.
std::unique_ptr<PreTokenizer> json_pre_tokenizer(const nlohmann::json& description, bool* is_byte_level);

}  // namespace bie::text
