// A matrix of groups of codes as the arrays of a layer in a folder.
// Source: docs/spec/weight-only.md#weights, docs/spec/files.md#gptq.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bie/formats/array.h"
#include "bie/formats/gguf.h"
#include "bie/kernels/parallel.h"
#include "llm/folder/rotated_rows.h"

namespace bie::llm::folder {

/// Blocks [n, k / group] of a type with groups, and where each row of the layer stands among them.
struct CodedBlocks {
  const formats::GgufType* type;
  std::int64_t n, k;
  std::shared_ptr<const formats::Bytes> bytes;
  RowOrder order;

  std::int64_t groups() const { return k / type->group; }
  const std::uint8_t* block(std::int64_t row, std::int64_t group) const;
};

/// Words of a layer: [k * bits / 32 rounded up, n], the codes of an output down a column, or, of an embedding,
/// [n, k * bits / 32 rounded up].
std::vector<std::int64_t> word_sizes(const CodedBlocks& of, bool is_table);
std::vector<std::uint32_t> words_of(const CodedBlocks& of, bool is_table, const kernels::Parallel& parallel);

/// The scales, or the zeros that are 16-bit floats: [k / group, n], of an embedding [n, k / group].
enum class GroupNumber : std::uint8_t { scale, zero };
std::vector<std::uint16_t> numbers_of(const CodedBlocks& of, GroupNumber which, bool is_table);

/// GPTQ's qzeros [k / group, n * bits / 32 rounded up]: whole zeros less one.
std::vector<std::uint32_t> packed_zeros_of(const CodedBlocks& of);

}  // namespace bie::llm::folder
