// GPTQ on the grid of a file's type. Source: docs/spec/quantization.md#gptq.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bie/formats/gguf.h"
#include "bie/kernels/parallel.h"
#include "bie/weights/gptq.h"
#include "llm/rounded_rows.h"

namespace bie::llm {

/// Blocks of a type with codes, of rows that are opened a few at a time.
/// @throws what `read` throws, and formats::Error as gguf_rounded does.
std::vector<std::uint8_t> gptq_rows(const std::string& what, const formats::GgufType& type, std::int64_t rows,
                                    const ReadRow& read, const weights::ErrorFeedback& feedback,
                                    const kernels::Parallel& parallel);

}  // namespace bie::llm
