// How well a model predicts a text. Source: docs/spec/language-models.md#perplexity.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "bie/llm/session.h"

namespace bie::llm {

using SeePredictions =
    std::function<void(std::int64_t first, std::int64_t rows, const float* logits, const double* losses)>;

/// -ln p of the tokens 1 ... n - 1 of a text, in double. Token i is predicted from the tokens of its window before it,
/// the first token of a window from the whole window before.
/// @param window  tokens of a window, up to the model's context.
/// @param go_on   asked with the number of predictions made so far; false ends the list there.
/// @param see     if it is set, told of each pass: the first of its predictions, how many they are, their logits
///                [rows, vocabulary] and losses.
/// @throws formats::Error for a window beyond the context, a token that the vocabulary lacks, a NaN among logits.
std::vector<double> losses_of(Session& session, const std::vector<std::int32_t>& tokens, std::int64_t window,
                              const std::function<bool(std::int64_t)>& go_on, const SeePredictions& see = {});

/// A mean over the predictions of a text.
struct Mean {
  double value = 0;
  /// The 95 % interval of the mean over texts like this one, from its blocks; nothing where it has fewer than two.
  std::optional<std::pair<double, double>> interval;
};

inline constexpr std::int64_t perplexity_block = 128;  ///< predictions that the interval takes for one observation

/// @param values  at least one, in the order of the text. The last block of the interval takes in what is left.
Mean mean_of(const std::vector<double>& values);

/// e^x of a mean and of the ends of its interval: the perplexity of a mean of losses.
Mean exp_of(const Mean& mean);

}  // namespace bie::llm
