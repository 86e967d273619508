// How large the inputs of a model's matrices are on a text, so that errors of the weights that they meet count so much.
// Source: docs/spec/language-models.md#importance.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bie/llm/session.h"

namespace bie::llm {

/// The mean of x^2 for each input of a matrix [columns], by GGUF's names: the diagonal of the mean of x x^T.
using Importance = std::map<std::string, std::vector<float>>;

/// Reads a text in windows, each from its beginning.
/// @param go_on  asked with the number of tokens read so far; false ends the reading there.
/// @throws formats::Error for a window beyond the context, a token that the vocabulary lacks, inputs that are NaN or
/// infinite.
Importance importance_of(Session& session, const std::vector<std::int32_t>& tokens, std::int64_t window,
                         const std::function<bool(std::int64_t)>& go_on);

/// Files of llama.cpp's imatrix, as GGUF: sums of squares and counts for each matrix. The file is replaced when all is
/// written.
/// @throws formats::Error, here and below, one sentence naming the file.
void save_importance(const std::string& path, const Importance& importance, std::int64_t tokens, std::int64_t window);
Importance load_importance(const std::string& path);

}  // namespace bie::llm
