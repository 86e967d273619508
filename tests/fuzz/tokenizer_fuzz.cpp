// Any text and any bytes as a GGUF file: one sentence, or a tokenizer whose tokens of the text become the text again.
// The input is the text behind its length in two bytes, and the file.
#include <algorithm>

#include "bie/formats/gguf.h"
#include "bie/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"
#include "text/utf8.h"

namespace {

using namespace bie;

/// Whether every byte of the text is a token, or the name of one.
bool has_all_bytes(const text::Tokenizer& tokenizer, const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [&](char byte) { return !tokenizer.encode(std::string(1, byte), false).empty(); });
}

/// SentencePiece has three bytes for a space, and one in front; what it does not know it calls by a name. Other schemes
/// normalise texts, which may grow.
void check(const text::Tokenizer& tokenizer, const std::string& text, bool special, bool is_whole,
           const text::Vocabulary& v) {
  const bool is_byte_level = v.scheme == text::Vocabulary::Scheme::bytes && v.description.empty();
  const bool has_pieces = v.scheme == text::Vocabulary::Scheme::pieces && v.charsmap.empty();
  const std::vector<std::int32_t> tokens = tokenizer.encode(text, special);
  if (has_pieces || is_byte_level)
    formats::fuzz::require(tokens.size() <= (has_pieces ? 6 * text.size() + 3 : text.size()));
  std::string streamed;
  text::CharacterStream characters;
  for (const std::int32_t token : tokens) {
    formats::fuzz::require(token >= 0 && token < tokenizer.size());
    streamed += characters.put(tokenizer.bytes(token, /*special=*/true));
  }
  streamed += characters.end();
  formats::fuzz::require(streamed == tokenizer.decode(tokens, /*special=*/true));
  formats::fuzz::require(!is_byte_level || (is_whole ? streamed == text : streamed.size() <= text.size()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t length = std::min<std::size_t>(data[0] | data[1] << 8, size - 2);
  const std::string text(reinterpret_cast<const char*>(data) + 2, length);
  const std::string valid = text::valid_utf8(text);
  for (std::size_t at = 0; at < valid.size();) {
    const int bytes = text::character_bytes(valid, at);
    formats::fuzz::require(bytes > 0);
    at += static_cast<std::size_t>(bytes);
  }
  try {
    const formats::GgufFile file = formats::load_gguf(formats::fuzz::file_of(data + 2 + length, size - 2 - length));
    const text::Tokenizer tokenizer = text::gguf_tokenizer(file);
    const text::Vocabulary v = text::gguf_vocabulary(file);
    if (const auto begin = tokenizer.begin()) formats::fuzz::require(*begin >= 0 && *begin < tokenizer.size());
    const bool is_whole = has_all_bytes(tokenizer, text);
    for (const bool special : {false, true}) check(tokenizer, text, special, is_whole, v);
  } catch (const formats::Error& error) {
    const std::string sentence = error.what();
    formats::fuzz::require(!sentence.empty() && sentence.find('\n') == std::string::npos);
  }
  return 0;
}
