// A model's thoughts are told apart from its answer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bie::text {

/// Cuts an answer, which comes in any pieces, at `<think>` and `</think>`. Neither mark is part of what it returns, nor
/// are line ends behind a mark.
class ThoughtStream {
 public:
  struct Part {
    std::string text;
    bool is_thought;
    bool operator==(const Part& other) const { return text == other.text && is_thought == other.is_thought; }
  };

  /// @param is_thought  whether the answer begins behind a `<think>` that stands in the prompt.
  explicit ThoughtStream(bool is_thought = false) : is_thought_(is_thought) {}

  /// Returns what can be told now; an end that may begin a mark waits for the rest of it.
  std::vector<Part> put(std::string_view text);
  bool is_thought() const { return is_thought_; }
  /// Returns what still waits.
  std::vector<Part> end();

 private:
  void tell(std::string_view text, std::vector<Part>* parts);

  std::string held_;
  bool is_thought_, is_behind_mark_ = false;
};

/// Whether a prompt ends behind a `<think>` that nothing closes.
bool ends_in_thought(std::string_view prompt);

}  // namespace bie::text
