// A folder's config.json as GGUF's metadata.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bie/formats/gguf.h"
#include "llm/folder/family.h"

namespace bie::llm::folder {

struct Settings {
  const Family* family = nullptr;
  std::map<std::string, formats::GgufValue> metadata;  ///< those that read_config asks for
  std::vector<float> divisors;                         ///< `rope_freqs.weight`, or nothing
  bool is_tied = false;                                ///< the head is the embedding
};

/// @param path  of the configuration, for sentences.
/// @throws formats::Error, one sentence naming the file and the setting: JSON that is none, a model type, an activation
/// or a scaling of rotations that is not read, a number of another kind.
Settings read_settings(const std::string& path, const std::string& text);

}  // namespace bie::llm::folder
