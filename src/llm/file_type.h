// What a GGUF file says of the type of its matrices.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bie/formats/gguf_writer.h"

namespace bie::llm {

/// Sets `general.file_type` to llama.cpp's number for files most of whose matrices are of the type that most are of
/// here; where it has none the key is taken out.
void put_file_type(const std::vector<formats::GgufOutput>& tensors,
                   std::map<std::string, formats::GgufValue>* metadata);

}  // namespace bie::llm
