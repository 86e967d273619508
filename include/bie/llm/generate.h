// Answers to prompts, many at once: each is what it would be alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bie/llm/sampler.h"
#include "bie/llm/session.h"
#include "bie/text/tokenizer.h"

namespace bie::llm {

struct GenerateOptions {
  std::int64_t tokens = -1;   ///< of an answer at most; -1: to its end or the context's
  std::int64_t context = 0;   ///< of prompt and answer at most; 0: the model's
  std::int64_t logprobs = 0;  ///< likeliest tokens to be told for each token of an answer
  std::string cache_file;     ///< of the only prompt, if any: cache_file.h
  std::vector<std::string> stops;
  SamplerOptions sampler;
};

struct Answer {
  enum class Finish : std::uint8_t { length, stop, end, interrupted };

  std::vector<std::int32_t> prompt, tokens;  ///< tokens: with the one that ended the answer
  std::int64_t cached = 0;                   ///< tokens of the prompt that the cache file or `kept` held
  std::string text;                          ///< cut before a stop text; control tokens have none
  Finish finish = Finish::length;
  std::string stop;  ///< the stop text before which it was cut, if any
  std::vector<std::vector<std::pair<std::int32_t, double>>> logprobs;  ///< of each token
};

/// Seconds of all prompts, and of all answers.
struct Times {
  double prompt = 0, generate = 0;
};

/// Called as text comes: the answer's number and whole characters. May be empty.
using TellText = std::function<void(std::size_t, const std::string&)>;

/// Bytes of the cache of one answer while prompt and text have so many tokens.
std::int64_t cache_bytes(const Session& session, std::int64_t tokens);

/// @param go_on  asked before each token; false ends all answers.
/// @param kept   null, or a text of the only prompt: what both begin with is not read again. It is prompt and answer
///               afterwards, but for the tokens that were not read; where an exception leaves, it is as it was.
/// @throws formats::Error for an empty prompt or one that leaves the context no room; for a cache file that cannot be
/// used, before anything is read, and for one that cannot be written, after the prompt has been.
std::vector<Answer> generate(Session& session, const text::Tokenizer& tokenizer,
                             const std::vector<std::vector<std::int32_t>>& prompts, const GenerateOptions& options,
                             const TellText& tell, const std::function<bool()>& go_on, Times* times,
                             Sequence* kept = nullptr);

/// "length", "stop", "end", "interrupted"
const char* name(Answer::Finish finish);

}  // namespace bie::llm
