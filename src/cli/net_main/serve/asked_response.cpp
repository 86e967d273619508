// Requests of OpenAI's responses.
#include <algorithm>

#include "bie/formats/error.h"
#include "cli/net_main/serve/api_error.h"
#include "cli/net_main/serve/asked_common.h"

namespace bie::cli {
namespace {

using formats::joined;

/// This server keeps no answers, so nothing can be built on an earlier one or fetched later.
void refuse_what_is_kept(const Fields& fields) {
  for (const char* name : {"previous_response_id", "conversation", "prompt"})
    if (fields.find(name) != nullptr)
      throw ApiError(400, joined(name, ": this server keeps no answers; send the whole conversation as input"), name);
  if (fields.flag("background"))
    throw ApiError(400, "background: expected false, as this server keeps no answers, got true", "background");
  const Json* const text = fields.find("text");
  if (text != nullptr && !text->is_object()) Fields::fail("text", "an object", *text);
  const Json format = text == nullptr ? Json() : text->value("format", Json());
  if (!format.is_null() && !(format.is_object() && format.value("type", Json()) == "text"))
    Fields::fail("text.format", R"({"type": "text"}, as answers are not bound to a form)", format);
}

/// An item of the input, as a message; null for what a model has thought, which templates leave out.
Json message_of(const std::string& name, const Json& item) {
  const Json type = item.is_object() ? item.value("type", Json()) : Json();
  if (type == "reasoning") return nullptr;
  if (!item.is_object() || !(type.is_null() || type == "message") || !item.value("role", Json()).is_string())
    Fields::fail(name, "a message with a role", item);
  const std::string role = item["role"];
  return {{"role", role == "developer" ? "system" : role},
          {"content",
           text_of_content(name + ".content", item.value("content", Json()), {"input_text", "output_text", "text"})}};
}

Json messages_of(const Fields& fields) {
  Json messages = Json::array();
  if (fields.find("instructions") != nullptr)
    messages.push_back({{"role", "system"}, {"content", fields.text("instructions")}});
  const Json* const input = fields.find("input");
  if (input != nullptr && input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
    return messages;
  }
  if (input == nullptr || !input->is_array() || input->empty())
    Fields::fail("input", "a text, or a list of messages", input == nullptr ? Json() : *input);
  for (std::size_t i = 0; i < input->size(); ++i)
    if (Json message = message_of(joined("input[", i, "]"), (*input)[i]); !message.is_null())
      messages.push_back(std::move(message));
  if (messages.empty()) Fields::fail("input", "a message at least", *input);
  return messages;
}

bool wants_chances(const Fields& fields) {
  const Json* const include = fields.find("include");
  if (include == nullptr) return false;
  bool is_good = include->is_array();
  for (std::size_t i = 0; is_good && i < include->size(); ++i) is_good = (*include)[i].is_string();
  if (!is_good) Fields::fail("include", "a list of texts", *include);
  return std::find(include->begin(), include->end(), Json("message.output_text.logprobs")) != include->end();
}

}  // namespace

Asked asked_response(const Json& body, std::int64_t vocabulary) {
  const Fields fields(body);
  refuse_what_is_kept(fields);
  Asked asked = common_fields(fields, vocabulary);
  asked.messages = messages_of(fields);
  asked.request.tokens = fields.whole("max_output_tokens", 1, most_tokens, -1);
  asked.request.stops = stop_texts(fields, "stop");
  const std::int64_t likeliest = fields.whole("top_logprobs", 0, 20, 0);
  if (wants_chances(fields)) asked.request.likeliest = likeliest;
  const Json* const metadata = fields.find("metadata");
  if (metadata != nullptr && !metadata->is_object()) Fields::fail("metadata", "an object", *metadata);
  asked.repeated = {{"instructions", body.value("instructions", Json())},
                    {"max_output_tokens", body.value("max_output_tokens", Json())},
                    {"metadata", metadata == nullptr ? Json::object() : *metadata},
                    {"temperature", fields.number("temperature", 0, 1000, 1)},
                    {"top_p", asked.request.sampler.top_p},
                    {"user", fields.find("user") == nullptr ? Json() : Json(fields.text("user"))}};
  return asked;
}

}  // namespace bie::cli
