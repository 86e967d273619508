// The vocabulary of a folder with a token for each row of the embedding.
#pragma once

#include <cstdint>
#include <string>

#include "bie/text/vocabulary.h"

namespace bie::llm::folder {

/// Rows that the tokenizer has no token for become unused ones, "[PAD7]".
/// @throws formats::Error naming the folder: no tokenizer, one that is not read, more tokens than rows.
text::Vocabulary padded_vocabulary(const std::string& path, std::int64_t rows);

}  // namespace bie::llm::folder
