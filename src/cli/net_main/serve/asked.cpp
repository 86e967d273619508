// Requests of OpenAI's chats and completions.
#include "bie/formats/error.h"
#include "cli/net_main/serve/api_error.h"
#include "cli/net_main/serve/asked_common.h"

namespace bie::cli {
namespace {

using formats::joined;

/// The fields of chats and completions.
Asked openai_fields(const Fields& fields, std::int64_t vocabulary) {
  Asked asked = common_fields(fields, vocabulary);
  asked.answers = fields.whole("n", 1, most_answers, 1);
  if (const Json* const options = fields.find("stream_options")) {
    if (!options->is_object()) Fields::fail("stream_options", "an object", *options);
    if (!asked.streams) Fields::fail("stream_options", "\"stream\": true beside it", *options);
    asked.tells_usage = Fields(*options).flag("include_usage");
  }
  asked.request.stops = stop_texts(fields, "stop");
  return asked;
}

}  // namespace

std::vector<AskedText> texts_of(const char* name, const Json& value, std::int64_t vocabulary) {
  std::vector<AskedText> texts;
  const auto take = [&](const Json& one) {
    if (one.is_string())
      texts.emplace_back(one.get<std::string>());
    else if (one.is_array() && !one.empty())
      texts.emplace_back(tokens_of_list(name, one, vocabulary));
    else
      Fields::fail(name, "a text, a list of tokens, or a list of these", one);
  };
  const bool is_list = value.is_array() && !value.empty() && (value[0].is_string() || value[0].is_array());
  if (!is_list) {
    take(value);
  } else {
    for (const Json& one : value) take(one);
  }
  return texts;
}

Json chat_messages(const Json& body) {
  const Json* const given = Fields(body).find("messages");
  if (given == nullptr || !given->is_array() || given->empty())
    Fields::fail("messages", "a list of messages", given == nullptr ? Json() : *given);
  Json messages = *given;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string name = joined("messages[", i, "]");
    Json& message = messages[i];
    if (!message.is_object() || !message.value("role", Json()).is_string())
      Fields::fail(name, "an object with a role", message);
    const Json content = message.value("content", Json());
    message["content"] = content.is_null() ? "" : text_of_content(name + ".content", content, {"text"});
    if (message["role"] == "developer") message["role"] = "system";  // templates know no other word
  }
  return messages;
}

Asked asked_chat(const Json& body, std::int64_t vocabulary) {
  const Fields fields(body);
  Asked asked = openai_fields(fields, vocabulary);
  asked.messages = chat_messages(body);
  asked.request.tokens =
      fields.whole("max_completion_tokens", 0, most_tokens, fields.whole("max_tokens", -1, most_tokens, -1));
  const bool wants = fields.flag("logprobs");
  const std::int64_t likeliest = fields.whole("top_logprobs", 0, 20, 0);
  if (fields.find("top_logprobs") != nullptr && !wants)
    throw ApiError(400, "top_logprobs: expected \"logprobs\": true beside it, got none", "top_logprobs");
  if (wants) asked.request.likeliest = likeliest;
  return asked;
}

Asked asked_completion(const Json& body, std::int64_t vocabulary) {
  const Fields fields(body);
  Asked asked = openai_fields(fields, vocabulary);
  const Json* const prompt = fields.find("prompt");
  if (prompt == nullptr) Fields::fail("prompt", "a text", Json());
  asked.prompts = texts_of("prompt", *prompt, vocabulary);
  if (static_cast<std::int64_t>(asked.prompts.size()) * asked.answers > most_answers)
    throw ApiError(400,
                   joined("prompt: expected at most ", most_answers, " answers to all prompts together, got ",
                          asked.prompts.size(), " prompts and n of ", asked.answers),
                   "prompt");
  asked.request.tokens = fields.whole("max_tokens", -1, most_tokens, 16);
  asked.echoes = fields.flag("echo");
  if (fields.find("suffix") != nullptr && *fields.find("suffix") != "")
    throw ApiError(400, "suffix: this server fills no gaps in a text", "suffix");
  if (fields.whole("best_of", 1, most_answers, asked.answers) != asked.answers)
    throw ApiError(400, "best_of: expected n, as all answers are told, got another number", "best_of");
  if (fields.find("logprobs") != nullptr) {
    asked.request.likeliest = fields.whole("logprobs", 0, 20, 0);
    asked.request.of_prompt = asked.echoes;
  }
  return asked;
}

}  // namespace bie::cli
