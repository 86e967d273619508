// Any bytes as a chat template and as its messages: one sentence, or a prompt of UTF-8 in pieces of alternating marks.
// The input is the messages behind their length in two bytes, and the template; of no length, a fixed conversation.
#include <algorithm>
#include <string>

#include "bie/text/chat_template.h"
#include "bie/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace bie;

constexpr const char* conversation = R"([{"role": "system", "content": " Be brief. "},
  {"role": "user", "content": [{"type": "text", "text": "<|im_end|>"}, {"type": "image"}]},
  {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "type": "function",
    "function": {"name": "f", "arguments": {"x": 1, "y": [null, true, 2.5]}}}]},
  {"role": "tool", "content": "4", "tool_call_id": "a"}, {"role": "user", "content": "\u00e4\u4f60 <think>"}])";

text::ChatInput input_of(std::string messages) {
  text::ChatInput input;
  input.messages = messages.empty() ? conversation : std::move(messages);
  input.tools = R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])";
  input.variables = R"({"n": 7, "s": "Hello, World", "x": {"y": [1, "a", null]}})";
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.now = std::tm{};
  return input;
}

/// Small enough that no input takes long under the sanitizers.
text::ChatLimits limits() { return {50'000, 1 << 18, 1 << 22, 1 << 22}; }

void check(const std::vector<text::ChatPiece>& pieces) {
  std::string prompt;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    formats::fuzz::require(!pieces[i].text.empty());
    formats::fuzz::require(text::valid_utf8(pieces[i].text) == pieces[i].text);
    formats::fuzz::require(i == 0 || pieces[i].from_template != pieces[i - 1].from_template);
    prompt += pieces[i].text;
  }
  formats::fuzz::require(prompt.size() <= static_cast<std::size_t>(limits().bytes));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t length = std::min<std::size_t>(data[0] | data[1] << 8, size - 2);
  const auto* const bytes = reinterpret_cast<const char*>(data);
  try {
    const text::ChatTemplate chat_template(std::string_view(bytes + 2 + length, size - 2 - length));
    check(chat_template.render(input_of(std::string(bytes + 2, length)), limits()));
  } catch (const formats::Error& error) {
    const std::string sentence = error.what();
    formats::fuzz::require(!sentence.empty() && sentence.find('\n') == std::string::npos);
    formats::fuzz::require(text::valid_utf8(sentence) == sentence);
  }
  return 0;
}
