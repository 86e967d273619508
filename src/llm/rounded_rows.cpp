#include "llm/rounded_rows.h"

#include <algorithm>
#include <cstring>

#include "bie/formats/gguf_writer.h"
#include "bie/kernels/shared_rows.h"
#include "kernels/arithmetic/float_bits.h"

namespace bie::llm {
namespace {

constexpr std::int64_t part_bytes = 1 << 18;  // of the floats that a thread holds

void put_numbers(const formats::GgufType& type, const float* values, std::int64_t count, std::uint8_t* to) {
  if (type.element == formats::Element::f32) {
    std::memcpy(to, values, static_cast<std::size_t>(4 * count));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint16_t half = type.element == formats::Element::f16 ? kernels::f16_from_float(values[i])
                                                                     : kernels::bf16_from_float(values[i]);
    std::memcpy(to + 2 * i, &half, 2);
  }
}

}  // namespace

std::vector<std::uint8_t> rounded_rows(const std::string& what, const formats::GgufType& type, std::int64_t rows,
                                       std::int64_t columns, const ReadRow& read, const kernels::Parallel& parallel,
                                       const float* importance) {
  const std::int64_t row_bytes = columns / type.weights * type.bytes;
  const bool is_coded = type.kind == formats::GgufType::Kind::codes;
  std::vector<std::uint8_t> blocks(static_cast<std::size_t>(rows * row_bytes));
  if (is_coded && columns % type.weights != 0) formats::gguf_rounded(what, type, nullptr, 0, columns);  // says so
  const std::int64_t part = std::max<std::int64_t>(1, part_bytes / (4 * std::max<std::int64_t>(1, columns)));
  kernels::share_rows(parallel, rows, part, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> values(static_cast<std::size_t>(part * columns));
    for (std::int64_t at = begin; at < end; at += part) {
      const std::int64_t count = std::min(part, end - at);
      for (std::int64_t i = 0; i < count; ++i) read(at + i, values.data() + i * columns);
      std::uint8_t* const to = blocks.data() + at * row_bytes;
      if (is_coded) {
        const std::vector<std::uint8_t> made =
            formats::gguf_rounded(what, type, values.data(), count, columns, importance);
        std::copy(made.begin(), made.end(), to);
      } else {
        put_numbers(type, values.data(), count * columns, to);
      }
    }
  });
  return blocks;
}

}  // namespace bie::llm
