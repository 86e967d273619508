// Contents of foreign weight files: GGUF files and folders of safetensors.
#pragma once

#include <optional>
#include <string>

#include "cli/support/result.h"

namespace bie::cli {

/// Whether it is a regular file that begins as GGUF files do.
bool begins_with_gguf(const std::string& path);

/// Whether it is a GGUF file or a folder with a tokenizer.
bool is_language_model(const std::string& path);

/// The fields of `bie inspect --json`; nullopt for a path that is neither a folder nor begins with GGUF.
std::optional<Json> weights_json(const std::string& path);

void print_weights(const Json& fields);

}  // namespace bie::cli
