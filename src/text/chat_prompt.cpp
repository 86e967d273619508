#include "bie/text/chat_prompt.h"

#include "bie/formats/error.h"
#include "bie/text/thoughts.h"

namespace bie::text {
namespace {

constexpr const char* key = "tokenizer.chat_template";

std::string name_of(const Tokenizer& tokenizer, std::optional<std::int32_t> token) {
  return token ? std::string(tokenizer.bytes(*token, /*special=*/true)) : "";
}

using Metadata = decltype(formats::GgufFile::metadata);

const std::string& text_of(const formats::GgufFile& file, const Metadata::value_type& entry) {
  const auto* const text = std::get_if<std::string>(&entry.second.value);
  if (text == nullptr)
    formats::fail_file("GGUF file", file.path, "the metadata ", formats::in_quotes(entry.first), ": expected a text");
  return *text;
}

/// Files have {query} and {document} in single braces.
std::string with_double_braces(std::string source) {
  for (const std::string name : {"query", "document"})
    for (std::size_t at = 0; (at = source.find("{" + name + "}", at)) != std::string::npos; at += name.size() + 2)
      if (at == 0 || source[at - 1] != '{') source.replace(at, name.size() + 2, "{{" + name + "}}");
  return source;
}

}  // namespace

bool has_chat_template(const formats::GgufFile& file) { return file.metadata.count(key) > 0; }

ChatTemplate gguf_chat_template(const formats::GgufFile& file, bool for_tools) {
  auto found = for_tools ? file.metadata.find(std::string(key) + ".tool_use") : file.metadata.end();
  if (found == file.metadata.end()) found = file.metadata.find(key);
  if (found == file.metadata.end()) formats::fail_file("GGUF file", file.path, "expected a chat template, got none");
  return ChatTemplate(text_of(file, *found), "the chat template of " + file.path);
}

std::optional<ChatTemplate> gguf_rank_template(const formats::GgufFile& file) {
  const auto found = file.metadata.find(std::string(key) + ".rerank");
  if (found == file.metadata.end()) return std::nullopt;
  return ChatTemplate(with_double_braces(text_of(file, *found)), "the template of ranks of " + file.path);
}

ChatPrompt chat_prompt(const Tokenizer& tokenizer, const ChatTemplate& chat_template, ChatInput input) {
  if (input.bos_token.empty()) input.bos_token = name_of(tokenizer, tokenizer.bos());
  if (input.eos_token.empty()) input.eos_token = name_of(tokenizer, tokenizer.eos());
  const std::vector<ChatPiece> pieces = chat_template.render(input);
  std::vector<TextPart> parts;
  parts.reserve(pieces.size());
  for (const ChatPiece& piece : pieces) parts.push_back({piece.text, piece.from_template});
  ChatPrompt prompt{tokenizer.encode(parts), !pieces.empty() && ends_in_thought(pieces.back().text)};
  if (prompt.tokens.empty()) throw formats::Error("the chat template: expected it to write a prompt, got no token");
  return prompt;
}

}  // namespace bie::text
