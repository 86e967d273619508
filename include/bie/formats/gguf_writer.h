// GGUF files, written; see gguf.h for what they are.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bie/formats/coded_rows.h"
#include "bie/formats/gguf.h"

namespace bie::formats {

/// Codes as blocks of a type, each number as it is: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q1_0, Q2_0 (blocks of 64), TQ2_0.
/// @param what  begins sentences.
/// @throws Error where the type cannot hold them: codes of another width or offset, groups that no block divides, rows
/// that are no whole blocks, a scale or offset that is no 16-bit float, a type that is not written.
std::vector<std::uint8_t> gguf_blocks(const std::string& what, const GgufType& type, const CodedRows& rows);

/// Floats [rows, columns] rounded to blocks of one of these types or of Q2_K to Q6_K: as ggml's quantize_row_*_ref
/// does, to the bit, or with the least weighted error among several scales for each group.
/// @param importance  null, or the weights of squared errors by column, 0 or more; all 0 counts as null.
/// @throws Error for NaN, infinity, a scale beyond 16-bit floats, rows that are no whole blocks, another type.
std::vector<std::uint8_t> gguf_rounded(const std::string& what, const GgufType& type, const float* values,
                                       std::int64_t rows, std::int64_t columns, const float* importance = nullptr);

/// The largest code that floats are rounded to: 2 of the ternary types, else that of all bits.
int gguf_most_code(const GgufType& type);

/// Puts codes [type.weights] in place of those of a block of one of these types, whose scales and offsets stay.
void gguf_put_codes(const GgufType& type, const std::uint8_t* codes, std::uint8_t* block);

/// A tensor to be written; `bytes` are its blocks or elements, or, where they are null, what `make` returns: it is
/// called once, when it is the tensor's turn.
struct GgufOutput {
  std::string name;
  std::vector<std::int64_t> sizes;  ///< the contiguous axis last
  const GgufType* type;
  const std::uint8_t* bytes;
  std::int64_t byte_count;
  std::function<std::vector<std::uint8_t>()> make = nullptr;
};

/// Version 3, tensors in the order given, padded to `general.alignment` (32). The file is written beside `path`,
/// flushed to disk and renamed, so that a failed write leaves what was at `path`.
/// @throws Error, one sentence naming the file and the tensor: a name twice, more than 4 axes, bytes that do not fit;
/// what `make` throws.
void save_gguf(const std::string& path, const std::map<std::string, GgufValue>& metadata,
               const std::vector<GgufOutput>& tensors);

/// The bytes of the file that save_gguf would write. @throws as it does for what is wrong with the tensors.
std::int64_t gguf_file_bytes(const std::string& path, const std::map<std::string, GgufValue>& metadata,
                             const std::vector<GgufOutput>& tensors);

}  // namespace bie::formats
