#include "bie/llm/model_file.h"

#include <filesystem>
#include <utility>

#include "bie/formats/error.h"
#include "llm/folder/family.h"
#include "llm/folder/open_folder.h"
#include "llm/folder/padded_vocabulary.h"

namespace bie::llm {

std::string ModelFile::called(std::string_view name) const {
  return family == nullptr ? std::string(name) : folder::folder_name(*family, name);
}

void ModelFile::fail(const std::string& sentence) const { formats::fail_file(kind, gguf.path, sentence); }

ModelFile open_model(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return folder::open_folder(path);
  ModelFile model;
  model.gguf = formats::load_gguf(path);
  return model;
}

text::Tokenizer tokenizer_of(const ModelFile& file, std::int64_t rows) {
  if (file.is_folder()) {
    text::Vocabulary vocabulary = folder::padded_vocabulary(file.path(), rows);
    try {
      return text::Tokenizer(std::move(vocabulary));
    } catch (const formats::Error& error) {
      file.fail(error.what());
    }
  }
  text::Tokenizer tokenizer = text::gguf_tokenizer(file.gguf);
  if (tokenizer.size() != rows)
    file.fail(formats::joined("expected as many tokens as rows of the embedding, ", rows, ", got ", tokenizer.size()));
  return tokenizer;
}

void forget_tokens(ModelFile* file) {
  for (const char* list : {"tokens", "scores", "token_type", "merges", "precompiled_charsmap"})
    file->gguf.metadata.erase(std::string("tokenizer.ggml.") + list);
}

}  // namespace bie::llm
