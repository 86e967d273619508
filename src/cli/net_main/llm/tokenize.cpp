// The work of bie tokenize.
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "cli/llm/language.h"
#include "cli/net_main/llm/loaded_language.h"
#include "cli/support/result.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

/// That of a GGUF file, of a folder, or of a tokenizer.json or .model.
text::Tokenizer tokenizer_of(const std::string& path) {
  const auto ends_with = [&](std::string_view end) {
    return path.size() >= end.size() && path.compare(path.size() - end.size(), end.size(), end) == 0;
  };
  std::error_code error;
  if (ends_with(".json") || ends_with(".model") || std::filesystem::is_directory(path, error))
    return text::folder_tokenizer(path);
  return text::gguf_tokenizer(formats::load_gguf(path));
}

}  // namespace

void tokenize_text(const TokenizeArguments& a, const Global& global) {
  const text::Tokenizer tokenizer = tokenizer_of(a.model);
  if (a.decode) {
    std::string text = tokenizer.decode(a.tokens, /*special=*/true);
    const bool has_begin = !a.tokens.empty() && tokenizer.begin() == a.tokens.front();
    const std::size_t space = has_begin ? tokenizer.bytes(a.tokens.front(), /*special=*/true).size() : 0;
    if (tokenizer.adds_space() && space < text.size() && text[space] == ' ') text.erase(space, 1);
    if (global.json)
      print_json("tokenize", {{"text", text::valid_utf8(text)}});
    else
      print_text(text + "\n");
    return;
  }
  const std::vector<std::int32_t> tokens = tokens_of(tokenizer, a.text ? *a.text : text_of_file(a.file), !a.no_special);
  if (global.json) {
    print_json("tokenize", {{"tokens", tokens}});
    return;
  }
  for (const std::int32_t token : tokens)
    std::printf("%7d  %s\n", token, printable(std::string(tokenizer.bytes(token, /*special=*/true))).c_str());
}

}  // namespace bie::cli
