// Rows of queries and keys: GGUF files of some architectures have the rotated pairs as neighbours, folders as halves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bie/llm/config.h"

namespace bie::llm::folder {

/// For each row of one kind of file its row in the other kind; empty: rows stand alike.
using RowOrder = std::vector<std::int64_t>;

/// @param name  GGUF's, of a weight or a bias.
RowOrder folder_rows_of_gguf(const Config& config, const std::string& name);
RowOrder gguf_rows_of_folder(const Config& config, const std::string& name);

}  // namespace bie::llm::folder
