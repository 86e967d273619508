// The answers to a request as far as they are written, which the forms tell of.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "bie/text/thoughts.h"
#include "cli/net_main/serve/asked.h"

namespace bie::cli {

/// A prompt as the model reads it.
struct ReadPrompt {
  std::vector<std::int32_t> tokens;
  std::string text;  ///< that echo gives back
  bool ends_in_thought = false;
};

using TextParts = std::vector<text::ThoughtStream::Part>;
/// A token before which nothing stands has a log-probability that is no number.
using Chances = std::vector<llm::TokenChance>;

/// A piece is said or thought without a break. The tokens of a thought have no chances here.
struct Piece {
  std::string text;
  bool is_thought = false;
  Chances chances;
};

struct Choice {
  std::vector<Piece> pieces;  ///< in their order
  Chances chances;            ///< of all tokens
  Chances waiting;            ///< of those that no piece has yet, as their text waits
  std::string finish;         ///< "length", "stop" or "cancelled"; empty: it is being written
  std::string stop;           ///< the stop text before which it was cut, if any
  text::ThoughtStream stream;
  std::int64_t tokens = 0, thought_tokens = 0, cached = 0;
  bool has_echoed = false;
  std::chrono::steady_clock::time_point last;

  /// All that is said, or thought.
  std::string text(bool is_thought) const;
};

/// Tokens of all prompts, of these those that kept pages held, of all answers, and of these those of thoughts.
struct Usage {
  std::int64_t prompt = 0, cached = 0, written = 0, thought = 0;
};

struct Answers {
  Asked asked;
  std::vector<ReadPrompt> prompts;
  std::string id, model;
  std::int64_t created;
  std::vector<Choice> choices;  ///< those of the first prompt, those of the second, ...

  bool is_chat() const { return !asked.messages.is_null(); }
  const ReadPrompt& prompt_of(std::size_t choice) const {
    return prompts[choice / static_cast<std::size_t>(asked.answers)];
  }
  Usage usage() const;
};

}  // namespace bie::cli
