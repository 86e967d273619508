// Prompts of messages, by the chat template of a model.
#pragma once

#include <string>

#include "bie/text/chat_prompt.h"
#include "cli/net_main/llm/loaded_language.h"
#include "cli/support/result.h"

namespace bie::cli {

/// The template of a model's file, or of --template.
class ChatPrompts {
 public:
  /// @throws formats::Error: there is no template, or it is not read.
  ChatPrompts(const LoadedLanguage& language, const ChatOptions& options, bool for_tools = false);

  /// @param messages   objects with role and content.
  /// @param variables  of the template, which take precedence over those of the options.
  /// @throws formats::Error: the template refuses them.
  text::ChatPrompt prompt(const Json& messages, const Json& tools = nullptr,
                          const Json& variables = Json::object()) const;

 private:
  const text::Tokenizer& tokenizer_;
  text::ChatTemplate template_;
  Json variables_ = Json::object();
};

/// A message of the system where --system gives one, else none.
Json first_messages(const ChatOptions& options);

Json message(const char* role, const std::string& content);

/// A file's conversation: a list of messages, or an object with "messages" and, it may be, "tools".
struct Conversation {
  Json messages, tools;
};

/// @throws formats::Error naming the file: it is no JSON, a message has no role.
Conversation conversation_of(const std::string& path);

}  // namespace bie::cli
