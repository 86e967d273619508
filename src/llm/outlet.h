// An answer on its way from tokens to the user.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bie/llm/generate.h"
#include "bie/text/tokenizer.h"

namespace bie::llm {

/// Text on its way to the user: whole characters, and nothing that may turn out to begin a stop text.
class Outlet {
 public:
  /// @param stops  outlive the outlet; none is empty.
  explicit Outlet(const std::vector<std::string>& stops) : stops_(stops) {}

  /// Returns the text that can be told now. `stop` points to the stop text that is complete, which is left out, or is
  /// null.
  std::string put(std::string_view bytes, const std::string** stop);
  std::string end() { return take(held_.size()) + characters_.end(); }

 private:
  std::string take(std::size_t count);
  std::size_t begun_stop() const;

  const std::vector<std::string>& stops_;
  text::CharacterStream characters_;
  std::string held_;
};

/// Appends a token to an answer and its text to `told`, all that is held where the answer ends here.
/// @param room  tokens of the answer at most.
/// @return whether the answer goes on; its `finish` says why not.
bool take_token(const text::Tokenizer& tokenizer, std::int32_t token, std::int64_t room, Outlet& outlet, Answer& answer,
                std::string* told);

/// @param which  begins the sentence.
/// @throws formats::Error for a prompt without tokens, or with more than the context.
void check_prompt(const std::string& which, const std::vector<std::int32_t>& prompt, std::int64_t context);

}  // namespace bie::llm
