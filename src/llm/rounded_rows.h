// Rows of a matrix as blocks of a type, for files that are written.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bie/formats/gguf.h"
#include "bie/kernels/parallel.h"

namespace bie::llm {

/// Opens a row [columns]. Threads share it.
using ReadRow = std::function<void(std::int64_t row, float* values)>;

/// Blocks, or plain numbers, of rows that are opened a few at a time.
/// @param what        begins sentences.
/// @param importance  of columns, for types of codes; null: each number becomes the nearest of its block.
/// @throws what `read` throws, and formats::Error as gguf_rounded does.
std::vector<std::uint8_t> rounded_rows(const std::string& what, const formats::GgufType& type, std::int64_t rows,
                                       std::int64_t columns, const ReadRow& read, const kernels::Parallel& parallel,
                                       const float* importance = nullptr);

}  // namespace bie::llm
