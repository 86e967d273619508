// The files of a language model as the rest of bie::llm sees them: a GGUF file, or a folder of Hugging Face by GGUF's
// names. Source: docs/spec/language-models.md#folders.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "bie/formats/coded_layers.h"
#include "bie/formats/gguf.h"
#include "bie/formats/ternary_layers.h"
#include "bie/text/tokenizer.h"

namespace bie::llm {

namespace folder {
struct Family;
}

struct ModelFile {
  std::string kind = "GGUF file";  ///< what sentences call it
  /// Metadata, and the tensors that are no codes of a folder.
  formats::GgufFile gguf;
  /// The linears of codes that a folder holds, by GGUF's name without ".weight".
  std::map<std::string, formats::CodedLayer> codes;
  std::map<std::string, formats::TernaryLayer> ternary;  ///< those of BitNet, likewise
  /// Whose names and order of rotated pairs the files have; null for GGUF's own.
  const folder::Family* family = nullptr;

  const std::string& path() const { return gguf.path; }
  bool is_folder() const { return family != nullptr; }
  /// Whether the head is no other than the embedding.
  bool is_tied() const { return gguf.find("output.weight") == nullptr && !codes.contains("output"); }
  /// The name that the files themselves have for one of GGUF's.
  std::string called(std::string_view name) const;
  /// @throws formats::Error naming the files.
  [[noreturn]] void fail(const std::string& sentence) const;
};

/// Maps a GGUF file, whole or in parts, or a folder: `config.json` with safetensors. Nothing is arranged yet.
/// @throws formats::Error, one sentence: what the files' readers refuse, a model or a setting that is not read, by
/// name.
ModelFile open_model(const std::string& path);

/// The tokenizer of the files.
/// @param rows  of the embedding, each of which is a token.
/// @throws formats::Error, one sentence: no tokenizer, one that is not read, another number of tokens.
text::Tokenizer tokenizer_of(const ModelFile& file, std::int64_t rows);

/// Drops the metadata's lists of tokens and merges, which nothing but `tokenizer_of` reads.
void forget_tokens(ModelFile* file);

}  // namespace bie::llm
