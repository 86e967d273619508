#include "cli/net_main/llm/chat_prompt.h"

#include <ctime>
#include <utility>

#include "bie/formats/error.h"
#include "bie/formats/gguf.h"
#include "formats/json_text.h"

namespace bie::cli {
namespace {

text::ChatTemplate template_of(const LoadedLanguage& language, const ChatOptions& o, bool for_tools) {
  if (!o.template_file.empty()) return text::ChatTemplate(text_of_file(o.template_file), "file " + o.template_file);
  const llm::ModelFile& file = language.model->file();
  if (!text::has_chat_template(file.gguf))
    file.fail("expected a chat template, got none; --template names a file that holds one");
  return text::gguf_chat_template(file.gguf, for_tools);
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm time{};
  ::localtime_r(&now, &time);
  return time;
}

/// @param at  of the message, from 1.
void check_message(const std::string& path, const Json& message, std::size_t at) {
  if (!message.is_object())
    formats::fail_file("file", path, "message ", at, ": expected an object, got ", message.type_name());
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string())
    formats::fail_file("file", path, "message ", at, ": expected a text as its role, got ",
                       role == message.end() ? "none" : role->type_name());
}

}  // namespace

ChatPrompts::ChatPrompts(const LoadedLanguage& language, const ChatOptions& o, bool for_tools)
    : tokenizer_(language.tokenizer), template_(template_of(language, o, for_tools)) {
  if (o.no_think) variables_["enable_thinking"] = false;
}

text::ChatPrompt ChatPrompts::prompt(const Json& messages, const Json& tools, const Json& variables) const {
  text::ChatInput input;
  input.messages = messages.dump();
  if (!tools.is_null()) input.tools = tools.dump();
  Json all = variables_;
  all.update(variables);
  input.variables = all.dump();
  input.now = local_time();
  return text::chat_prompt(tokenizer_, template_, std::move(input));
}

Json message(const char* role, const std::string& content) {
  return {{"role", role}, {"content", text::valid_utf8(content)}};
}

Json first_messages(const ChatOptions& o) {
  Json messages = Json::array();
  if (o.system) messages.push_back(message("system", *o.system));
  return messages;
}

Conversation conversation_of(const std::string& path) {
  const std::string text = text_of_file(path);
  if (formats::parse_json(text).is_discarded())
    formats::fail_file("file", path, "expected JSON of at most 32 levels with each key once, got other text");
  Json all = Json::parse(text);  // in the order of its keys
  Conversation found;
  if (all.is_object()) {
    found.messages = all.value("messages", Json());
    found.tools = all.value("tools", Json());
  } else {
    found.messages = std::move(all);
  }
  if (!found.messages.is_array())
    formats::fail_file("file", path, "expected a list of messages, got ", found.messages.type_name());
  if (found.messages.empty()) formats::fail_file("file", path, "expected a message at least, got an empty list");
  for (std::size_t i = 0; i < found.messages.size(); ++i) check_message(path, found.messages[i], i + 1);
  if (!found.tools.is_null() && !found.tools.is_array())
    formats::fail_file("file", path, "expected a list of tools, got ", found.tools.type_name());
  return found;
}

}  // namespace bie::cli
