#include "cli/net_main/serve/form.h"

#include <algorithm>

namespace bie::cli {

double told(double logprob) { return std::max(logprob, -9999.0); }

std::string event_of(const Json& json) { return "data: " + json_text(json) + "\n\n"; }

std::string named_event_of(const Json& json) {
  return "event: " + json["type"].get<std::string>() + "\n" + event_of(json);
}

std::string Form::name_of(std::int32_t token) const {
  return text::valid_utf8(tokenizer_.bytes(token, /*special=*/true));
}

Json Form::chances_json(const Chances& chances) const {
  const auto one = [this](std::int32_t token, double logprob) {
    const std::string_view bytes = tokenizer_.bytes(token, /*special=*/true);
    return Json{{"token", text::valid_utf8(bytes)},
                {"logprob", told(logprob)},
                {"bytes", std::vector<unsigned char>(bytes.begin(), bytes.end())}};
  };
  Json list = Json::array();
  for (const llm::TokenChance& chance : chances) {
    Json json = one(chance.token, chance.logprob);
    json["top_logprobs"] = Json::array();
    for (const auto& [token, logprob] : chance.likeliest) json["top_logprobs"].push_back(one(token, logprob));
    list.push_back(std::move(json));
  }
  return list;
}

std::string Choice::text(bool is_thought) const {
  std::string text;
  for (const Piece& piece : pieces)
    if (piece.is_thought == is_thought) text += piece.text;
  return text;
}

Usage Answers::usage() const {
  Usage usage;
  for (const ReadPrompt& prompt : prompts) usage.prompt += static_cast<std::int64_t>(prompt.tokens.size());
  for (const Choice& choice : choices) {
    usage.written += choice.tokens;
    usage.thought += choice.thought_tokens;
  }
  for (std::size_t i = 0; i < choices.size(); i += static_cast<std::size_t>(asked.answers))
    usage.cached += choices[i].cached;
  return usage;
}

}  // namespace bie::cli
