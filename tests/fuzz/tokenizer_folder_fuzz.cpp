// Any text and any bytes as a tokenizer.json or a .model: one sentence, or a tokenizer that takes every text. The input
// is the text behind its length in two bytes, and the file.
#include <algorithm>

#include "bie/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"
#include "text/sentence_pieces.h"

namespace {

using namespace bie;
using formats::fuzz::require;

/// Whether a token may come of a text in which control tokens have no names.
bool may_be_text(const text::Tokenizer& tokenizer, const text::Vocabulary& v, std::int32_t token) {
  const std::string& name = v.tokens[static_cast<std::size_t>(token)];
  return !tokenizer.is_control(token) || token == v.unknown || text::SentencePieces::fallback_byte(name);
}

void check(const text::Tokenizer& tokenizer, const text::Vocabulary& v, const std::string& text, bool special) {
  const std::vector<std::int32_t> tokens = tokenizer.encode(text, special);
  for (const std::int32_t token : tokens) {
    require(token >= 0 && token < tokenizer.size());
    require(special || may_be_text(tokenizer, v, token));
  }
  for (const auto* around : {&tokenizer.before(), &tokenizer.after()})
    for (const std::int32_t token : *around) require(token >= 0 && token < tokenizer.size());
  tokenizer.decode(tokens, /*special=*/true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t length = std::min<std::size_t>(data[0] | data[1] << 8, size - 2);
  const std::string text(reinterpret_cast<const char*>(data) + 2, length);
  try {
    const std::string file(reinterpret_cast<const char*>(data) + 2 + length, size - 2 - length);
    const bool is_json = !file.empty() && file[0] == '{';
    const text::Vocabulary v = is_json ? text::tokenizer_json_vocabulary(file) : text::sentencepiece_vocabulary(file);
    const text::Tokenizer tokenizer(v);
    text::gguf_scheme(v);
    for (const bool special : {false, true}) check(tokenizer, v, text, special);
  } catch (const formats::Error& error) {
    const std::string sentence = error.what();
    require(!sentence.empty() && sentence.find('\n') == std::string::npos);
  }
  return 0;
}
