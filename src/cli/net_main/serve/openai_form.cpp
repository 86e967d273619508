#include "cli/net_main/serve/openai_form.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace bie::cli {
namespace {

std::int64_t characters_of(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

class ChatForm final : public OpenaiForm {
 public:
  ChatForm(const Answers& answers, const text::Tokenizer& tokenizer)
      : OpenaiForm(answers, tokenizer, "chat.completion", "chat.completion.chunk") {}

  std::string begin() override {
    std::string events;
    for (std::size_t i = 0; i < answers_.choices.size(); ++i)
      events += piece(i, {{"delta", {{"role", "assistant"}, {"content", ""}}}, {"finish_reason", nullptr}});
    return events;
  }

  std::string tell(std::size_t choice, const TextParts& parts, const Chances& chances) override {
    Json logprobs = logprobs_of(chances, nullptr);
    std::string events;
    const auto add = [&](const char* name, const std::string& text) {
      events += piece(
          choice,
          {{"delta", {{name, text}}}, {"logprobs", std::exchange(logprobs, nullptr)}, {"finish_reason", nullptr}});
    };
    for (const auto& part : parts) add(part.is_thought ? "reasoning_content" : "content", part.text);
    if (parts.empty() && !chances.empty()) add("content", "");
    return events;
  }

 private:
  Json content_of(const Choice& choice) const override {
    Json json = {{"message", {{"role", "assistant"}, {"content", choice.text(/*is_thought=*/false)}}}};
    if (const std::string thoughts = choice.text(/*is_thought=*/true); !thoughts.empty())
      json["message"]["reasoning_content"] = thoughts;
    return json;
  }
  Json nothing() const override { return {{"delta", Json::object()}}; }
  Json logprobs_of(const Chances& chances, std::int64_t*) const override {
    if (!answers_.asked.request.likeliest) return nullptr;
    return {{"content", chances_json(chances)}};
  }
};

class TextForm final : public OpenaiForm {
 public:
  TextForm(const Answers& answers, const text::Tokenizer& tokenizer)
      : OpenaiForm(answers, tokenizer, "text_completion", "text_completion"), characters_(answers.choices.size()) {}

  std::string tell(std::size_t choice, const TextParts& parts, const Chances& chances) override {
    std::string text;
    for (const auto& part : parts) text += part.text;
    if (text.empty() && chances.empty()) return "";
    return piece(
        choice, {{"text", text}, {"logprobs", logprobs_of(chances, &characters_[choice])}, {"finish_reason", nullptr}});
  }

 private:
  Json content_of(const Choice& choice) const override { return {{"text", choice.text(/*is_thought=*/false)}}; }
  Json nothing() const override { return {{"text", ""}}; }
  Json logprobs_of(const Chances& chances, std::int64_t* characters) const override {
    if (!answers_.asked.request.likeliest) return nullptr;
    Json json = {{"tokens", Json::array()},
                 {"token_logprobs", Json::array()},
                 {"top_logprobs", Json::array()},
                 {"text_offset", Json::array()}};
    for (const llm::TokenChance& chance : chances) {
      const bool is_first = std::isnan(chance.logprob);
      Json best = nullptr;
      if (!is_first && *answers_.asked.request.likeliest > 0) {
        best = Json::object();
        for (const auto& [token, logprob] : chance.likeliest) best.emplace(name_of(token), told(logprob));
      }
      json["tokens"].push_back(name_of(chance.token));
      json["token_logprobs"].push_back(is_first ? Json() : Json(told(chance.logprob)));
      json["top_logprobs"].push_back(std::move(best));
      json["text_offset"].push_back(*characters);
      *characters += characters_of(text::valid_utf8(tokenizer_.bytes(chance.token)));
    }
    return json;
  }

  std::vector<std::int64_t> characters_;  ///< of each choice, in its stream so far
};

template <class Made>
std::unique_ptr<Form> make(const Answers& answers, const text::Tokenizer& tokenizer) {
  return std::make_unique<Made>(answers, tokenizer);
}

}  // namespace

const Interface chat_interface = {"chatcmpl-", "messages", asked_chat, make<ChatForm>};
const Interface completion_interface = {"cmpl-", "prompt", asked_completion, make<TextForm>};

Json OpenaiForm::head(const char* kind) const {
  return {{"id", answers_.id},
          {"object", kind},
          {"created", answers_.created},
          {"model", answers_.model},
          {"seed", answers_.asked.seed}};
}

Json OpenaiForm::usage() const {
  const Usage usage = answers_.usage();
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.written},
          {"total_tokens", usage.prompt + usage.written},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.thought}}}};
}

std::string OpenaiForm::piece(std::size_t choice, Json fields) const {
  Json event = head(piece_);
  fields["index"] = choice;
  event["choices"] = Json::array({std::move(fields)});
  if (answers_.asked.tells_usage) event["usage"] = nullptr;
  return event_of(event);
}

std::string OpenaiForm::end_of(std::size_t choice) {
  Json last = nothing();
  last["logprobs"] = nullptr;
  last["finish_reason"] = answers_.choices[choice].finish;
  return piece(choice, std::move(last));
}

std::string OpenaiForm::end() {
  std::string events;
  if (answers_.asked.tells_usage) {
    Json event = head(piece_);
    event["choices"] = Json::array();
    event["usage"] = usage();
    events = event_of(event);
  }
  return events + "data: [DONE]\n\n";
}

Json OpenaiForm::whole() {
  Json answer = head(whole_);
  answer["choices"] = Json::array();
  for (std::size_t i = 0; i < answers_.choices.size(); ++i) {
    const Choice& choice = answers_.choices[i];
    Json json = {{"index", i}};
    json.update(content_of(choice));
    std::int64_t characters = 0;
    json["logprobs"] = logprobs_of(choice.chances, &characters);
    json["finish_reason"] = choice.finish;
    answer["choices"].push_back(std::move(json));
  }
  answer["usage"] = usage();
  return answer;
}

}  // namespace bie::cli
