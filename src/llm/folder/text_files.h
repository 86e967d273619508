// The files of a folder beside its weights.
#pragma once

#include <map>
#include <string>

#include "bie/llm/model_file.h"

namespace bie::llm::folder {

/// By name: config.json without a description of codes, and the tokenizer's, those of a folder as they are.
/// @param dtype  of plain numbers, as torch calls it.
/// @throws formats::Error as config_text and text::vocabulary_files do.
std::map<std::string, std::string> text_files(const ModelFile& model, const std::string& dtype);

}  // namespace bie::llm::folder
