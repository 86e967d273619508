#include "cli/net_main/serve/completion.h"

#include <chrono>
#include <ctime>
#include <limits>
#include <utility>

namespace bie::cli {
namespace {

/// The interfaces have one word for a full context and max_tokens, and one for an end and a stop text.
const char* finish_of(llm::Answer::Finish finish) { return finish == llm::Answer::Finish::length ? "length" : "stop"; }

/// None of the answers has begun.
Answers answers_to(Asked asked, std::vector<ReadPrompt> prompts, std::string id, std::string model) {
  Answers answers{std::move(asked), std::move(prompts), std::move(id), std::move(model), std::time(nullptr), {}};
  answers.choices.resize(answers.prompts.size() * static_cast<std::size_t>(answers.asked.answers));
  for (std::size_t i = 0; i < answers.choices.size(); ++i)
    answers.choices[i].stream = text::ThoughtStream(answers.prompt_of(i).ends_in_thought);
  return answers;
}

}  // namespace

Completion::Completion(Service& service, const ServedModel& model, const Interface& interface, Asked asked,
                       std::vector<ReadPrompt> prompts, Origin origin)
    : Work(service, model, random_id(interface.id), std::move(origin)),
      answers_(answers_to(std::move(asked), std::move(prompts), id(), model.name)),
      form_(interface.form(answers_, model.tokenizer())),
      open_(answers_.choices.size()) {}

std::vector<llm::Request> Completion::requests() const {
  std::vector<llm::Request> all;
  for (std::size_t i = 0; i < answers_.choices.size(); ++i) {
    all.push_back(answers_.asked.request);
    all.back().prompt = answers_.prompt_of(i).tokens;
    all.back().sampler.stream = i % static_cast<std::size_t>(answers_.asked.answers);
  }
  return all;
}

void Completion::cancel() {
  if (is_over()) return;
  stop_work();
  for (std::size_t i = 0; i < answers_.choices.size(); ++i) {
    Choice& choice = answers_.choices[i];
    if (!choice.finish.empty()) continue;
    if (answers_.is_chat()) tell(i, choice.stream.end(), {});
    choice.finish = "cancelled";
    finish_choice(i);
  }
}

void Completion::fail(const ApiError& error) {
  if (!has_begun_) return Work::fail(error);
  exchange().write(form_->failure(error));
  exchange().end();
}

void Completion::time(Choice& choice) {
  const auto now = std::chrono::steady_clock::now();
  if (choice.tokens == 0)
    service_.metrics.first_token.add(seconds());
  else
    service_.metrics.next_token.add(std::chrono::duration<double>(now - choice.last).count());
  choice.last = now;
}

void Completion::hear(std::size_t at, const llm::News& news) {
  Choice& choice = answers_.choices[at];
  if (!choice.has_echoed && answers_.asked.echoes) {
    choice.has_echoed = true;
    const ReadPrompt& prompt = answers_.prompt_of(at);
    Chances chances = news.of_prompt;
    if (answers_.asked.request.of_prompt)
      chances.insert(chances.begin(), {prompt.tokens.front(), std::numeric_limits<double>::quiet_NaN(), {}});
    tell(at, {{prompt.text, false}}, chances);
  }
  const std::string text = text::valid_utf8(news.text);
  TextParts parts;
  bool is_of_thought = false;  // the token that came
  if (answers_.is_chat()) {
    is_of_thought = choice.stream.is_thought();
    parts = choice.stream.put(text);
    is_of_thought = is_of_thought || choice.stream.is_thought();
    if (news.finish)
      for (auto& part : choice.stream.end()) parts.push_back(std::move(part));
  } else if (!text.empty()) {
    parts = {{text, false}};
  }
  if (news.token) {
    time(choice);
    ++choice.tokens;
  }
  for (const auto& part : parts) is_of_thought = is_of_thought && part.is_thought;
  if (news.token && is_of_thought) ++choice.thought_tokens;
  tell(at, parts, news.chance ? Chances{*news.chance} : Chances(), is_of_thought);
  if (!news.finish) return;
  choice.finish = finish_of(*news.finish);
  choice.stop = news.stop;
  finish_choice(at);
}

/// Takes what an answer tells, and tells it where the request streams.
/// @param is_of_thought  the token of the chances.
void Completion::tell(std::size_t at, const TextParts& parts, const Chances& chances, bool is_of_thought) {
  Choice& choice = answers_.choices[at];
  if (!is_of_thought) choice.waiting.insert(choice.waiting.end(), chances.begin(), chances.end());
  for (const auto& part : parts) {
    if (choice.pieces.empty() || choice.pieces.back().is_thought != part.is_thought)
      choice.pieces.push_back({"", part.is_thought, {}});
    Piece& piece = choice.pieces.back();
    piece.text += part.text;
    if (part.is_thought) continue;
    piece.chances.insert(piece.chances.end(), choice.waiting.begin(), choice.waiting.end());
    choice.waiting.clear();
  }
  choice.chances.insert(choice.chances.end(), chances.begin(), chances.end());
  if (!answers_.asked.streams) return;
  begin_stream();
  exchange().write(form_->tell(at, parts, chances));
}

void Completion::begin_stream() {
  if (std::exchange(has_begun_, true)) return;
  exchange().begin("text/event-stream", {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
  exchange().write(form_->begin());
}

void Completion::finish_choice(std::size_t at) {
  if (answers_.asked.streams) {
    begin_stream();
    exchange().write(form_->end_of(at));
  }
  if (--open_ == 0) finish();
}

void Completion::finish() {
  if (answers_.asked.streams) {
    exchange().write(form_->end());
    exchange().end();
  } else {
    exchange().answer(200, "application/json", json_text(form_->whole()));
  }
  const Choice& first = answers_.choices.front();
  std::string text;
  for (const Piece& piece : first.pieces) text += piece.text;
  end(first.finish, text);
}

}  // namespace bie::cli
