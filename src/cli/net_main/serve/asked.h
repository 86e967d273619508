// The fields of requests of OpenAI's interface.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "bie/llm/scheduler.h"
#include "cli/support/result.h"

namespace bie::cli {

/// Fields of POST /v1/chat/completions and /v1/completions. Fields that nobody knows are ignored.
struct Asked {
  bool is_chat = false;
  Json messages, tools;                                                       ///< of a chat; contents are texts
  std::vector<std::variant<std::string, std::vector<std::int32_t>>> prompts;  ///< of a completion
  std::int64_t answers = 1;                                                   ///< to each prompt
  bool streams = false, tells_usage = false, echoes = false;
  Json seed;             ///< as the client named it, or a random one
  llm::Request request;  ///< of each answer, but for its prompt and stream
};

/// @param body        JSON.
/// @param vocabulary  tokens of the model.
/// @throws ApiError naming the field.
Asked asked_chat(const std::string& body, std::int64_t vocabulary);
Asked asked_completion(const std::string& body, std::int64_t vocabulary);

/// The object that a body holds. @throws ApiError
Json body_object(const std::string& body);

/// A list of tokens, which may be empty. @throws ApiError
std::vector<std::int32_t> tokens_field(const Json& body, const char* name, std::int64_t vocabulary);

/// The text of a field. @throws ApiError where it is absent or none.
std::string text_field(const Json& body, const char* name);

/// The messages of a chat with one text as the content of each. @throws ApiError
Json messages_field(const Json& body);

}  // namespace bie::cli
