// How a token is chosen from logits. Source: docs/spec/language-models.md#choice.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace bie::llm {

/// Defaults choose the largest logit.
struct SamplerOptions {
  float temperature = 0;
  std::int64_t top_k = 0;  ///< 0: all
  double top_p = 1, min_p = 0;
  float repeat_penalty = 1;
  std::uint64_t seed = 0, stream = 0;
  std::vector<std::pair<std::int32_t, float>> biases = {};  ///< tokens, each once, and what is added to their logits
  /// Subtracted from the logits of tokens of the answer: once, and for each time that they are there.
  float presence_penalty = 0, frequency_penalty = 0;
  std::int64_t prompt = 0;  ///< tokens at the beginning that are not of the answer
};

/// The token after `tokens`, which the sequence holds; a pure function.
/// @throws formats::Error where a logit is NaN.
std::int32_t choose_token(const float* logits, std::int64_t vocabulary, const std::vector<std::int32_t>& tokens,
                          const SamplerOptions& options);

/// The `count` likeliest tokens with the logarithms of their probabilities (kernels::log_probabilities), of equals the
/// lowest first.
std::vector<std::pair<std::int32_t, double>> likeliest_tokens(const float* logits, std::int64_t vocabulary,
                                                              std::int64_t count);

/// A number in [0, 1) of 53 bits: Philox4x32-10 with the seed as key and (position, stream) as counter.
/// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
double uniform_number(std::uint64_t seed, std::uint64_t stream, std::uint64_t position);

}  // namespace bie::llm
