// Requests of Anthropic's messages.
#include "bie/formats/error.h"
#include "cli/net_main/serve/api_error.h"
#include "cli/net_main/serve/asked_common.h"

namespace bie::cli {
using formats::joined;

Json message_messages(const Json& body) {
  const Fields fields(body);
  Json messages = Json::array();
  if (const Json* const system = fields.find("system"))
    messages.push_back({{"role", "system"}, {"content", text_of_content("system", *system, {"text"})}});
  const Json* const given = fields.find("messages");
  if (given == nullptr || !given->is_array() || given->empty())
    Fields::fail("messages", "a list of messages", given == nullptr ? Json() : *given);
  for (std::size_t i = 0; i < given->size(); ++i) {
    const std::string name = joined("messages[", i, "]");
    const Json& message = (*given)[i];
    const Json role = message.is_object() ? message.value("role", Json()) : Json();
    if (role != "user" && role != "assistant")
      Fields::fail(name, R"(an object of the role "user" or "assistant")", message);
    messages.push_back({{"role", role},
                        {"content", text_of_content(name + ".content", message.value("content", Json()), {"text"},
                                                    {"thinking", "redacted_thinking"})}});
  }
  if (messages.back()["role"] == "assistant")
    throw ApiError(
        400,
        "messages: expected the last one to be the user's, as this server continues no answer, got the assistant's",
        "messages");
  return messages;
}

Json message_variables(const Json& body) {
  Json variables = chat_variables(body);
  const Json* const thinking = Fields(body).find("thinking");
  if (thinking == nullptr) return variables;  // the template decides
  const Json type = thinking->is_object() ? thinking->value("type", Json()) : Json();
  if (type != "enabled" && type != "adaptive" && type != "disabled")
    Fields::fail("thinking", R"(an object of the type "enabled", "adaptive" or "disabled")", *thinking);
  variables["enable_thinking"] = type != "disabled";
  return variables;
}

Asked asked_message(const Json& body, std::int64_t vocabulary) {
  const Fields fields(body);
  Asked asked = common_fields(fields, vocabulary);
  const Json* const output = fields.find("output_config");
  const bool is_bound = output != nullptr && output->is_object() && !output->value("format", Json()).is_null();
  if (is_bound || fields.find("output_format") != nullptr)
    throw ApiError(400, "output_config: this server does not bind answers", "output_config");
  asked.messages = message_messages(body);
  asked.variables = message_variables(body);
  if (fields.find("max_tokens") == nullptr) Fields::fail("max_tokens", "a whole number from 1", Json());
  asked.request.tokens = fields.whole("max_tokens", 1, most_tokens, 1);
  asked.request.stops = stop_texts(fields, "stop_sequences");
  return asked;
}

}  // namespace bie::cli
