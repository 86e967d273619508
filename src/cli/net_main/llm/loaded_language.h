// A language model that a command has loaded, with what it needs to write text.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bie/llm/generate.h"
#include "cli/llm/language.h"

namespace bie::cli {

struct LoadedLanguage {
  std::shared_ptr<const llm::Model> model;
  text::Tokenizer tokenizer;
  llm::Session session;
  double load_seconds;

  /// Prompt and answer together have at most so many tokens.
  std::int64_t context(const LanguageOptions& options) const;
};

/// @throws formats::Error, std::runtime_error for threads that the system does not have.
LoadedLanguage load_language(const LanguageOptions& options, const Global& global);

/// As many threads as --threads says. @throws std::runtime_error where the system has fewer.
std::unique_ptr<kernels::ThreadPool> pool_of(const Global& global);

/// @param what  whose keys and values take so many bytes, and which options bound them.
/// @throws std::runtime_error where the memory that is left does not hold them.
void check_cache_memory(std::int64_t bytes, const std::string& what);

llm::GenerateOptions generate_options(const LanguageOptions& options);

/// The whole of a file, or of standard input for "-".
std::string text_of_file(const std::string& path);

/// Its lines, without what ends them.
/// @param what  each line holds, for the sentence about a file without lines.
std::vector<std::string> lines_of_file(const std::string& path, const char* what);

/// As it is, at once.
void print_text(const std::string& text);

/// Tokens of a text between those that the file puts before and after one.
std::vector<std::int32_t> tokens_of(const text::Tokenizer& tokenizer, const std::string& text, bool special);

}  // namespace bie::cli
