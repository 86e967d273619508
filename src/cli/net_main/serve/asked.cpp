#include "cli/net_main/serve/asked.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "bie/formats/error.h"
#include "cli/net_main/serve/api_error.h"
#include "formats/json_text.h"

namespace bie::cli {
namespace {

using formats::joined;

constexpr std::int64_t most_answers = 128;  // of a request
constexpr std::size_t most_keys = 512;      // of an object: in their order they are found one after the other

/// The fields of a body; null counts as absent.
class Fields {
 public:
  explicit Fields(const Json& body) : body_(body) {}

  const Json* find(const char* name) const {
    const auto found = body_.find(name);
    return found == body_.end() || found->is_null() ? nullptr : &*found;
  }
  [[noreturn]] static void fail(const std::string& name, const std::string& wanted, const Json& got) {
    throw ApiError(400, joined(name, ": expected ", wanted, ", got ", formats::shown(got)), name);
  }
  bool flag(const char* name) const {
    const Json* const value = find(name);
    if (value != nullptr && !value->is_boolean()) fail(name, "true or false", *value);
    return value != nullptr && value->get<bool>();
  }
  double number(const char* name, double least, double most, double absent) const {
    const Json* const value = find(name);
    if (value == nullptr) return absent;
    const bool is_good = value->is_number() && value->get<double>() >= least && value->get<double>() <= most;
    if (!is_good) fail(name, joined("a number from ", least, " to ", most), *value);
    return value->get<double>();
  }
  std::int64_t whole(const char* name, std::int64_t least, std::int64_t most, std::int64_t absent) const {
    const Json* const value = find(name);
    if (value == nullptr) return absent;
    if (!formats::is_whole(*value, least, most))
      fail(name, joined("a whole number from ", least, " to ", most), *value);
    return value->get<std::int64_t>();
  }

 private:
  const Json& body_;
};

std::vector<std::string> stops_of(const Fields& fields) {
  const Json* const value = fields.find("stop");
  if (value == nullptr) return {};
  const auto is_text = [](const Json& one) { return one.is_string() && !one.get<std::string>().empty(); };
  if (is_text(*value)) return {value->get<std::string>()};
  if (value->is_string()) return {};  // clients send "" for none
  bool is_good = value->is_array() && value->size() <= 16;
  for (std::size_t i = 0; is_good && i < value->size(); ++i) is_good = is_text((*value)[i]);
  if (!is_good) Fields::fail("stop", "a text, or a list of at most 16 that are not empty", *value);
  return value->get<std::vector<std::string>>();
}

std::vector<std::pair<std::int32_t, float>> biases_of(const Fields& fields, std::int64_t vocabulary) {
  const Json* const value = fields.find("logit_bias");
  if (value == nullptr) return {};
  if (!value->is_object()) Fields::fail("logit_bias", "an object of tokens and numbers", *value);
  std::vector<std::pair<std::int32_t, float>> biases;
  for (const auto& [name, bias] : value->items()) {
    std::int32_t token = 0;
    const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), token);
    if (error != std::errc() || rest != name.data() + name.size() || token < 0 || token >= vocabulary)
      Fields::fail("logit_bias", joined("tokens from 0 to ", vocabulary - 1), name);
    if (!bias.is_number() || std::abs(bias.get<double>()) > 100)
      Fields::fail("logit_bias", "numbers from -100 to 100", bias);
    for (const auto& other : biases)
      if (other.first == token) Fields::fail("logit_bias", "each token once", name);
    biases.emplace_back(token, bias.get<float>());
  }
  return biases;
}

/// The server refuses what is not built, so that nobody takes an answer for what it is not.
void refuse_what_is_absent(const Fields& fields) {
  for (const char* name : {"tools", "functions"}) {
    const Json* const value = fields.find(name);
    if (value != nullptr && !(value->is_array() && value->empty()))
      throw ApiError(400, joined(name, ": this server does not call tools"), name);
  }
  if (const Json* const value = fields.find("response_format")) {
    const bool is_text = value->is_object() && value->value("type", Json()) == "text";
    if (!is_text) Fields::fail("response_format", R"({"type": "text"}, as answers are not bound to a form)", *value);
  }
  for (const char* name : {"grammar", "json_schema", "guided_json", "guided_regex", "guided_choice", "guided_grammar"})
    if (fields.find(name) != nullptr) throw ApiError(400, joined(name, ": this server does not bind answers"), name);
}

std::uint64_t random_seed() {
  std::random_device device;
  return device() & 0x7fffffffU;
}

/// The fields that both interfaces share. Temperature is 1 where a request has none, as it is OpenAI's.
Asked common(const Fields& fields, std::int64_t vocabulary) {
  refuse_what_is_absent(fields);
  Asked asked;
  asked.answers = fields.whole("n", 1, most_answers, 1);
  asked.streams = fields.flag("stream");
  if (const Json* const options = fields.find("stream_options")) {
    if (!options->is_object()) Fields::fail("stream_options", "an object", *options);
    if (!asked.streams) Fields::fail("stream_options", "\"stream\": true beside it", *options);
    asked.tells_usage = Fields(*options).flag("include_usage");
  }
  asked.request.stops = stops_of(fields);
  asked.request.priority = fields.whole("priority", -1000000, 1000000, 0);
  llm::SamplerOptions& sampler = asked.request.sampler;
  sampler.temperature = static_cast<float>(fields.number("temperature", 0, 1000, 1));
  sampler.top_p = fields.number("top_p", 0, 1, 1);
  sampler.min_p = fields.number("min_p", 0, 1, 0);
  sampler.top_k = std::max<std::int64_t>(0, fields.whole("top_k", -1, std::int64_t{1} << 30, 0));
  sampler.repeat_penalty =
      static_cast<float>(fields.number("repeat_penalty", 0.01, 100, fields.number("repetition_penalty", 0.01, 100, 1)));
  sampler.presence_penalty = static_cast<float>(fields.number("presence_penalty", -2, 2, 0));
  sampler.frequency_penalty = static_cast<float>(fields.number("frequency_penalty", -2, 2, 0));
  sampler.biases = biases_of(fields, vocabulary);
  const std::int64_t seed =
      fields.whole("seed", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(), -1);
  sampler.seed = fields.find("seed") == nullptr ? random_seed() : static_cast<std::uint64_t>(seed);
  asked.seed = fields.find("seed") == nullptr ? Json(sampler.seed) : Json(seed);
  return asked;
}

/// The tokens of a list; what is none is shown.
std::vector<std::int32_t> tokens_of_list(const char* name, const Json& list, std::int64_t vocabulary) {
  for (const Json& one : list)
    if (!formats::is_whole(one, 0, vocabulary - 1))
      Fields::fail(name, joined("tokens from 0 to ", vocabulary - 1), one);
  return list.get<std::vector<std::int32_t>>();
}

/// One prompt or several: texts, or lists of tokens.
void take_prompts(const Json& value, std::int64_t vocabulary, Asked& asked) {
  const auto take = [&](const Json& one) {
    if (one.is_string())
      asked.prompts.emplace_back(one.get<std::string>());
    else if (one.is_array() && !one.empty())
      asked.prompts.emplace_back(tokens_of_list("prompt", one, vocabulary));
    else
      Fields::fail("prompt", "a text, a list of tokens, or a list of these", one);
  };
  const bool is_list = value.is_array() && !value.empty() && (value[0].is_string() || value[0].is_array());
  if (!is_list) return take(value);
  for (const Json& one : value) take(one);
}

/// The number of keys of the object that has the most.
std::size_t keys_of(const nlohmann::json& value) {
  std::size_t most = value.is_object() ? value.size() : 0;
  if (value.is_structured())
    for (const auto& one : value) most = std::max(most, keys_of(one));
  return most;
}

}  // namespace

Json body_object(const std::string& body) {
  const nlohmann::json parsed = formats::parse_json(body);
  if (parsed.is_discarded())
    throw ApiError(400, "expected a body of JSON, at most 32 levels deep and with each key once, got other text");
  if (!parsed.is_object()) throw ApiError(400, joined("expected an object as the body, got ", parsed.type_name()));
  if (const std::size_t keys = keys_of(parsed); keys > most_keys)
    throw ApiError(400, joined("expected objects of at most ", most_keys, " keys, got one of ", keys));
  return Json::parse(body);  // in the order of its keys
}

std::vector<std::int32_t> tokens_field(const Json& body, const char* name, std::int64_t vocabulary) {
  const Json* const list = Fields(body).find(name);
  if (list == nullptr || !list->is_array()) Fields::fail(name, "a list of tokens", list == nullptr ? Json() : *list);
  return tokens_of_list(name, *list, vocabulary);
}

std::string text_field(const Json& body, const char* name) {
  const Json* const value = Fields(body).find(name);
  if (value == nullptr || !value->is_string()) Fields::fail(name, "a text", value == nullptr ? Json() : *value);
  return value->get<std::string>();
}

Json messages_field(const Json& body) {
  const Json* const given = Fields(body).find("messages");
  if (given == nullptr || !given->is_array() || given->empty())
    Fields::fail("messages", "a list of messages", given == nullptr ? Json() : *given);
  Json messages = *given;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string name = joined("messages[", i, "]");
    Json& message = messages[i];
    if (!message.is_object() || !message.value("role", Json()).is_string())
      Fields::fail(name, "an object with a role", message);
    const auto content = message.find("content");
    if (content == message.end() || content->is_null()) {
      message["content"] = "";
      continue;
    }
    if (content->is_string()) continue;
    if (!content->is_array()) Fields::fail(name + ".content", "a text, or a list of parts", *content);
    std::string text;
    for (const Json& part : *content) {
      const bool is_text =
          part.is_object() && part.value("type", Json()) == "text" && part.value("text", Json()).is_string();
      if (!is_text) Fields::fail(name + ".content", "parts of text alone", part);
      text += part["text"].get<std::string>();
    }
    *content = text;
  }
  return messages;
}

Asked asked_chat(const std::string& text, std::int64_t vocabulary) {
  const Json body = body_object(text);
  const Fields fields(body);
  Asked asked = common(fields, vocabulary);
  asked.is_chat = true;
  asked.messages = messages_field(body);
  const std::int64_t most = std::int64_t{1} << 30;
  asked.request.tokens = fields.whole("max_completion_tokens", 0, most, fields.whole("max_tokens", -1, most, -1));
  const bool wants = fields.flag("logprobs");
  const std::int64_t likeliest = fields.whole("top_logprobs", 0, 20, 0);
  if (fields.find("top_logprobs") != nullptr && !wants)
    throw ApiError(400, "top_logprobs: expected \"logprobs\": true beside it, got none", "top_logprobs");
  if (wants) asked.request.likeliest = likeliest;
  return asked;
}

Asked asked_completion(const std::string& text, std::int64_t vocabulary) {
  const Json body = body_object(text);
  const Fields fields(body);
  Asked asked = common(fields, vocabulary);
  const Json* const prompt = fields.find("prompt");
  if (prompt == nullptr) Fields::fail("prompt", "a text", Json());
  take_prompts(*prompt, vocabulary, asked);
  if (static_cast<std::int64_t>(asked.prompts.size()) * asked.answers > most_answers)
    throw ApiError(400,
                   joined("prompt: expected at most ", most_answers, " answers to all prompts together, got ",
                          asked.prompts.size(), " prompts and n of ", asked.answers),
                   "prompt");
  asked.request.tokens = fields.whole("max_tokens", -1, std::int64_t{1} << 30, 16);
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
