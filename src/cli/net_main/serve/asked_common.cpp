#include "cli/net_main/serve/asked_common.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "bie/formats/error.h"
#include "cli/net_main/serve/api_error.h"

namespace bie::cli {
namespace {

using formats::joined;

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

std::uint64_t random_seed() {
  std::random_device device;
  return device() & 0x7fffffffU;
}

/// Other servers name them so.
Json template_variables(const Fields& fields) {
  Json variables = Json::object();
  if (const Json* const value = fields.find("chat_template_kwargs")) {
    bool is_good = value->is_object();
    if (is_good)
      for (const Json& one : *value) is_good = is_good && one.is_primitive();
    if (!is_good) Fields::fail("chat_template_kwargs", "an object of texts, numbers, true and false", *value);
    variables = *value;
  }
  if (fields.find("enable_thinking") != nullptr) variables["enable_thinking"] = fields.flag("enable_thinking");
  return variables;
}

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

bool is_among(std::initializer_list<std::string_view> names, const Json& name) {
  return name.is_string() && std::find(names.begin(), names.end(), name.get<std::string>()) != names.end();
}

}  // namespace

Json chat_variables(const Json& body) { return template_variables(Fields(body)); }

std::vector<std::string> stop_texts(const Fields& fields, const char* name) {
  const Json* const value = fields.find(name);
  if (value == nullptr) return {};
  const auto is_text = [](const Json& one) { return one.is_string() && !one.get<std::string>().empty(); };
  if (is_text(*value)) return {value->get<std::string>()};
  if (value->is_string()) return {};  // clients send "" for none
  bool is_good = value->is_array() && value->size() <= 16;
  for (std::size_t i = 0; is_good && i < value->size(); ++i) is_good = is_text((*value)[i]);
  if (!is_good) Fields::fail(name, "a text, or a list of at most 16 that are not empty", *value);
  return value->get<std::vector<std::string>>();
}

Asked common_fields(const Fields& fields, std::int64_t vocabulary) {
  refuse_what_is_absent(fields);
  Asked asked;
  asked.variables = template_variables(fields);
  asked.streams = fields.flag("stream");
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

std::string text_of_content(const std::string& name, const Json& content, std::initializer_list<std::string_view> types,
                            std::initializer_list<std::string_view> silent) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) Fields::fail(name, "a text, or a list of parts", content);
  std::string text;
  for (const Json& part : content) {
    const Json type = part.is_object() ? part.value("type", Json()) : Json();
    if (is_among(silent, type)) continue;
    if (!is_among(types, type) || !part.value("text", Json()).is_string())
      Fields::fail(name, "parts of text alone", part);
    text += part["text"].get<std::string>();
  }
  return text;
}

}  // namespace bie::cli
