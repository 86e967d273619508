// The fields of requests for answers.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "bie/llm/scheduler.h"
#include "cli/support/result.h"

namespace bie::cli {

/// A text as a client gives it: bytes, or tokens.
using AskedText = std::variant<std::string, std::vector<std::int32_t>>;

/// A request, whichever interface it came by. Fields that nobody knows are ignored.
struct Asked {
  Json messages;                    ///< of a chat, each with a text as its content; null where `prompts` are given
  Json variables = Json::object();  ///< of the chat template
  std::vector<AskedText> prompts;
  std::int64_t answers = 1;  ///< to each prompt
  bool streams = false, tells_usage = false, echoes = false;
  Json seed;                       ///< as the client named it, or a random one
  Json repeated = Json::object();  ///< fields that the answer repeats
  llm::Request request;            ///< of each answer, but for its prompt and stream
};

// OpenAI's chats, completions and responses, and Anthropic's messages.
// `vocabulary` are the tokens of the model. They throw ApiError naming the field.
Asked asked_chat(const Json& body, std::int64_t vocabulary);
Asked asked_completion(const Json& body, std::int64_t vocabulary);
Asked asked_response(const Json& body, std::int64_t vocabulary);
Asked asked_message(const Json& body, std::int64_t vocabulary);

/// One text or several: bytes, or lists of tokens. @throws ApiError naming the field.
std::vector<AskedText> texts_of(const char* name, const Json& value, std::int64_t vocabulary);
/// The messages of a chat, and the variables of its template. @throws ApiError
Json chat_messages(const Json& body);
Json chat_variables(const Json& body);
/// Anthropic's interface has the messages behind the text of its field `system`. @throws ApiError
Json message_messages(const Json& body);
Json message_variables(const Json& body);

}  // namespace bie::cli
