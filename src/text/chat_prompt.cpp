#include "bie/text/chat_prompt.h"

#include "bie/formats/error.h"
#include "bie/text/thoughts.h"

namespace bie::text {
namespace {

constexpr const char* key = "tokenizer.chat_template";

std::string name_of(const Tokenizer& tokenizer, std::optional<std::int32_t> token) {
  return token ? std::string(tokenizer.bytes(*token, /*special=*/true)) : "";
}

}  // namespace

bool has_chat_template(const formats::GgufFile& file) { return file.metadata.count(key) > 0; }

ChatTemplate gguf_chat_template(const formats::GgufFile& file, bool for_tools) {
  auto found = for_tools ? file.metadata.find(std::string(key) + ".tool_use") : file.metadata.end();
  if (found == file.metadata.end()) found = file.metadata.find(key);
  if (found == file.metadata.end()) formats::fail_file("GGUF file", file.path, "expected a chat template, got none");
  const auto* source = std::get_if<std::string>(&found->second.value);
  if (source == nullptr)
    formats::fail_file("GGUF file", file.path, "the metadata ", formats::in_quotes(found->first), ": expected a text");
  return ChatTemplate(*source, "the chat template of " + file.path);
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
