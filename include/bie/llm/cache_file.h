// A file of the pages of a text, so that a beginning which prompts have in common is read once.
// Source: docs/spec/language-models.md#cache-files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bie/llm/cache.h"
#include "bie/llm/model.h"

namespace bie::llm {

/// Fills an empty sequence with the longest beginning of `tokens` that the file holds, but never all of them, as the
/// last token's logits are wanted. No file: nothing is filled.
/// @returns how many tokens that is.
/// @throws formats::Error, one sentence naming the file: it is damaged, no cache file, or of another model, arithmetic,
/// kind of cache or version; it is left as it is.
std::int64_t load_cache(const std::string& path, const std::vector<std::int32_t>& tokens, const Model& model,
                        Sequence& sequence);

/// Writes a sequence, in one step; a file that begins with all of its tokens is left as it is.
/// @throws formats::Error, one sentence naming the file, which is as it was.
void save_cache(const std::string& path, const Model& model, const Sequence& sequence);

}  // namespace bie::llm
