// A folder's tokenizer as GGUF's metadata.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "bie/formats/gguf.h"

namespace bie::llm::folder {

/// Adds `tokenizer.ggml.*`.
/// @param rows  of the embedding; those without a token become unused ones, "[PAD7]".
/// @throws formats::Error, one sentence: no tokenizer, one that is not read, one that GGUF has no name for.
void put_vocabulary(const std::string& path, std::int64_t rows, std::map<std::string, formats::GgufValue>* metadata);

}  // namespace bie::llm::folder
