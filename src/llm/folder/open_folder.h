// A folder of Hugging Face as the files of a language model.
#pragma once

#include <string>

#include "bie/llm/model_file.h"

namespace bie::llm::folder {

/// @throws formats::Error, one sentence.
ModelFile open_folder(const std::string& path);

}  // namespace bie::llm::folder
