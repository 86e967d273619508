#include "llm/gptq.h"

#include <algorithm>

#include "bie/formats/gguf_writer.h"

namespace bie::llm {

std::vector<std::uint8_t> gptq_rows(const std::string& what, const formats::GgufType& type, std::int64_t rows,
                                    const ReadRow& read, const weights::ErrorFeedback& feedback,
                                    const kernels::Parallel& parallel) {
  const std::int64_t columns = feedback.size(), row_bytes = columns / type.weights * type.bytes;
  std::vector<std::uint8_t> blocks(static_cast<std::size_t>(rows * row_bytes));
  const auto open = [&](std::int64_t row, float* values, float* scales, float* zeros) {
    read(row, values);
    const std::vector<std::uint8_t> searched =
        formats::gguf_rounded(what, type, values, 1, columns, feedback.costs().data());
    std::copy(searched.begin(), searched.end(), blocks.begin() + row * row_bytes);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(columns));
    formats::gguf_row(type, searched.data(), columns, codes.data(), scales, zeros);
  };
  const auto take = [&](std::int64_t row, const std::uint8_t* codes) {
    std::uint8_t* block = blocks.data() + row * row_bytes;
    for (std::int64_t at = 0; at < columns; at += type.weights, block += type.bytes)
      formats::gguf_put_codes(type, codes + at, block);
  };
  weights::gptq_codes({type.group, formats::gguf_most_code(type), type.zero}, rows, open, take, feedback, parallel);
  return blocks;
}

}  // namespace bie::llm
