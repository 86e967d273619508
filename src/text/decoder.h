// The texts of tokens, by what a tokenizer.json calls "decoder".
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bie::text {

class Decoder {
 public:
  /// @throws formats::Error naming a step that is not read.
  explicit Decoder(const nlohmann::json& description);

  /// The bytes that a token adds to a text.
  std::string bytes(std::string_view name) const;
  /// Whether the space that a text begins with belongs to none.
  bool strips_space() const { return strips_space_; }

 private:
  struct Step {
    enum class Kind { space, bytes, byte_fallback, replace, strip, words } kind;
    std::string text, with;  ///< replace: both; strip: the character; words: the prefix of a word's later parts
    std::size_t count = 0, at_end = 0;  ///< strip
    bool cleans = false;                ///< words
  };
  void add(const nlohmann::json& step);
  static std::string applied(const Step& step, const std::string& text);

  std::vector<Step> steps_;
  bool is_fused_ = false;
  bool strips_space_ = false;
};

}  // namespace bie::text
