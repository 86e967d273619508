// The work of bie tokenize.
#include <cstdio>

#include "cli/llm/language.h"
#include "cli/net_main/llm/loaded_language.h"
#include "cli/support/result.h"
#include "cli/support/text.h"

namespace bie::cli {

void tokenize_text(const TokenizeArguments& a, const Global& global) {
  const formats::GgufFile file = formats::load_gguf(a.model);
  const text::Tokenizer tokenizer = text::gguf_tokenizer(file);
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
