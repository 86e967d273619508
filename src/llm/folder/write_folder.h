// A model with matrices of codes as a folder: what open_folder.h reads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "bie/formats/gguf.h"
#include "bie/kernels/parallel.h"
#include "bie/llm/model_file.h"
#include "bie/llm/quantize.h"

namespace bie::llm::folder {

struct FolderContents {
  ModelFormat format = ModelFormat::folder;  ///< of the folders
  /// Of every matrix, by GGUF's name: plain numbers, or groups of codes, as the format holds them.
  std::function<const formats::GgufType&(const std::string& name)> type_of;
  /// Blocks or numbers of a matrix, its rows as the model's own files have them. It is asked for a matrix several
  /// times.
  std::function<std::shared_ptr<const formats::Bytes>(const std::string& name, std::int64_t rows, std::int64_t columns)>
      bytes_of;
  bool write = true;                                                ///< else what would be written is told alone
  std::function<void(std::size_t done, std::size_t all)> progress;  ///< called before each tensor, if it is set
};

struct WrittenFolder {
  std::int64_t file_bytes = 0;  ///< of all files
  std::int64_t bytes = 0;       ///< of all tensors
  std::int64_t weights = 0;     ///< numbers that the tensors stand for
};

/// config.json, model.safetensors and the tokenizer's files, of a GGUF file or of another folder. The folder gets its
/// name when all is written.
/// @throws formats::Error, one sentence: settings that no config.json says, a tokenizer that no folder holds, a model
/// of BitNet, whose folders hold ternary codes alone, a folder of GPTQ without linears of codes; what NewFolder throws.
WrittenFolder write_folder(const ModelFile& model, const std::string& out, const FolderContents& contents,
                           const kernels::Parallel& parallel);

}  // namespace bie::llm::folder
