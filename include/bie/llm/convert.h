// Folders of language models as GGUF files.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "bie/formats/gguf.h"
#include "bie/kernels/parallel.h"
#include "bie/llm/model_file.h"

namespace bie::llm {

struct ConvertOptions {
  /// F32, F16, BF16 or Q8_0: of the matrices that the folder holds as floats, and of codes that no type of GGUF holds.
  /// Null: floats stay what they are, and such codes are refused.
  const formats::GgufType* type = nullptr;
  /// If it is set, the type of each matrix by GGUF's name, whatever the folder holds: codes are opened.
  std::function<const formats::GgufType&(const std::string& name, std::int64_t columns)> plan;
  /// If it is set, the importance of a matrix's columns; null where there is none.
  std::function<const float*(const std::string& name, std::int64_t columns)> importance;
  /// If it is set, the blocks of a matrix of the planned type, in the order of the folder's rows; null: they are made.
  std::function<std::shared_ptr<const formats::Bytes>(const std::string& name, std::int64_t rows, std::int64_t columns)>
      made;
  bool write = true;  ///< else the file's bytes are told alone
  /// Called before each tensor: how many were written, of how many.
  std::function<void(std::size_t done, std::size_t all)> progress;
};

/// Counts of what was written.
struct Converted {
  std::int64_t tensors = 0, bytes = 0, weights = 0;  ///< weights: numbers in all tensors
  std::map<std::string, std::int64_t> tensors_of_type;
  std::int64_t file_bytes = 0;  ///< with all that is no tensor
  std::int64_t opened = 0;      ///< linears of codes that became floats
};

/// Writes a folder under GGUF's names with its tokenizer and its chat template, as llama.cpp reads it: vectors and
/// norms as F32, rows of queries and keys of the llama family in rotated pairs, Gemma's norms with their 1. Codes stay
/// what they are where Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q1_0, Q2_0 or TQ2_0 hold them to the bit: codes of consecutive
/// groups of whole blocks, whose scales and offsets are 16-bit floats. Rows that are no whole blocks of Q8_0 become
/// F16.
/// @param out  is replaced when all is written.
/// @throws formats::Error, one sentence: no folder, codes that no type holds where no type is given, a tokenizer that
/// is not read or that GGUF has no name for. Source: docs/spec/files.md#gguf; docs/language-models.md#convert.
Converted convert(const ModelFile& folder, const std::string& out, const ConvertOptions& options,
                  const kernels::Parallel& parallel = kernels::serial());

}  // namespace bie::llm
