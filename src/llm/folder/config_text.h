// A GGUF file's settings as a folder's config.json: the inverse of settings.h.
#pragma once

#include <string>

#include "bie/llm/model_file.h"

namespace bie::llm::folder {

/// Indented JSON with sorted keys. A folder with it has the Config of the file, except that its rotated pairs are never
/// neighbours, and that rotations with the divisors of `rope_freqs.weight` may differ by a share of 1e-6.
/// @param dtype  the folder's plain numbers, as torch calls them: "bfloat16".
/// @throws formats::Error naming the file, one sentence: what read_config refuses, and what no config.json says to
/// read_settings or to the family's class in transformers, such as heads that turn in part, divisors other than those
/// of llama 3, windows or biases of a class that has none.
std::string config_text(const ModelFile& gguf, const std::string& dtype);

}  // namespace bie::llm::folder
