#include "bie/text/chat_template.h"

#include <algorithm>

#include "bie/text/tokenizer.h"
#include "text/chat_template/evaluator.h"
#include "text/chat_template/functions.h"
#include "text/chat_template/json_input.h"
#include "text/chat_template/lines.h"
#include "text/utf8.h"

namespace bie::text {
namespace {

using chat::Runtime;
using chat::Value;

/// One line of at most some hundred characters.
std::string one_line(const std::string& sentence) {
  constexpr std::size_t longest = 400;
  std::string text;
  for (const char c : sentence.substr(0, longest)) text += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return valid_utf8(text) + (sentence.size() > longest ? "..." : "");
}

[[noreturn]] void fail(const std::string& name, int line, const std::string& what) {
  throw formats::Error(formats::joined(name, ", line ", line, ": ", one_line(what)));
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const int length = character_bytes(text, at);
    if (length <= 0) return false;
    at += static_cast<std::size_t>(length);
  }
  return true;
}

/// The values of names by their symbols.
class Globals {
 public:
  explicit Globals(const chat::Symbols& symbols) : symbols_(symbols), values_(symbols.size()) {}

  void set(const std::string& name, Value value) {
    const int symbol = symbols_.find(name);
    if (symbol >= 0) values_[static_cast<std::size_t>(symbol)] = std::move(value);
  }
  std::vector<std::optional<Value>> take() { return std::move(values_); }

 private:
  const chat::Symbols& symbols_;
  std::vector<std::optional<Value>> values_;
};

std::vector<std::optional<Value>> globals_of(Runtime& runtime, const chat::Symbols& symbols, const ChatInput& input) {
  Globals globals(symbols);
  for (const auto& [name, function] : chat::functions(runtime)) globals.set(name, function);
  if (!input.variables.empty()) {
    const Value all = chat::from_json(runtime, input.variables, "the variables");
    if (!all.is(chat::Kind::dict)) chat::refuse("expected the variables as an object, got another value");
    for (const auto& [name, value] : all.dict().entries) globals.set(name.bytes(), value);
  }
  const Value messages = chat::from_json(runtime, input.messages, "the messages", /*is_messages=*/true);
  const auto& list = messages;
  if (!list.is(chat::Kind::sequence) || !std::all_of(list.sequence().values.begin(), list.sequence().values.end(),
                                                     [](const Value& message) { return message.is(chat::Kind::dict); }))
    chat::refuse("expected the messages as a list of objects, got another value");
  globals.set("messages", messages);
  if (!input.tools.empty()) globals.set("tools", chat::from_json(runtime, input.tools, "the tools"));
  if (!input.documents.empty()) globals.set("documents", chat::from_json(runtime, input.documents, "the documents"));
  globals.set("add_generation_prompt", Value::of(input.add_generation_prompt, true));
  globals.set("bos_token", runtime.string(valid_utf8(input.bos_token), true));
  globals.set("eos_token", runtime.string(valid_utf8(input.eos_token), true));
  return globals.take();
}

}  // namespace

struct ChatTemplate::Impl {
  std::string name;
  chat::Program program;
};

ChatTemplate::ChatTemplate(std::string_view source, std::string name) {
  constexpr std::size_t longest = std::size_t{1} << 20;
  if (source.size() > longest)
    fail(name, 1, formats::joined("expected at most ", longest, " bytes, got ", source.size()));
  if (!is_utf8(source)) fail(name, 1, "expected UTF-8, got other bytes");
  try {
    chat::Program program = chat::parse(source);
    impl_ = std::make_unique<const Impl>(Impl{std::move(name), std::move(program)});
  } catch (const chat::RefusalAt& refusal) {
    fail(name, refusal.line, refusal.what());
  }
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

std::vector<ChatPiece> ChatTemplate::render(const ChatInput& input, const ChatLimits& limits) const {
  Runtime runtime(limits, input.now);
  chat::MarkedText text;
  int line = 1;
  try {
    chat::Evaluator evaluator(impl_->program, runtime, globals_of(runtime, impl_->program.symbols, input));
    try {
      text = evaluator.run();
    } catch (const chat::Refusal&) {
      line = evaluator.line();
      throw;
    }
  } catch (const chat::Refusal& refusal) {
    fail(impl_->name, line, refusal.what());
  }
  std::vector<ChatPiece> pieces;
  text.runs(0, text.size(), [&](std::size_t begin, std::size_t end, bool mark) {
    pieces.push_back({text.bytes().substr(begin, end - begin), mark});
  });
  return pieces;
}

}  // namespace bie::text
