#include "cli/net_main/serve/completion.h"

#include <ctime>
#include <limits>
#include <random>
#include <utility>

#include "bie/formats/error.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

using formats::joined;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::string random_id(const char* kind) {
  std::random_device device;
  std::string id = kind;
  for (int i = 0; i < 4; ++i) id += format("%08x", device());
  return id;
}

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
                       std::vector<ReadPrompt> prompts, std::string client, std::shared_ptr<http::Exchange> exchange,
                       Refuse refuse, std::function<void(const Ended&)> ended)
    : service_(service),
      model_(model),
      answers_(answers_to(std::move(asked), std::move(prompts), random_id(interface.id), model.name)),
      form_(interface.form(answers_, model.tokenizer())),
      client_(std::move(client)),
      exchange_(std::move(exchange)),
      refuse_(std::move(refuse)),
      ended_(std::move(ended)),
      begin_(Clock::now()),
      ids_(std::make_shared<std::vector<llm::Scheduler::Id>>()),
      open_(answers_.choices.size()) {}

void Completion::start() {
  const auto self = shared_from_this();
  exchange_->on_gone([self] {
    if (self->is_over_) return;
    self->is_over_ = true;
    self->patience_ = nullptr;
    self->stop_work();
    self->ended_({self->id(), self->model_.name, 499, {}, seconds_since(self->begin_), "the client left", ""});
  });
  std::vector<llm::Request> requests;
  for (std::size_t i = 0; i < answers_.choices.size(); ++i) {
    requests.push_back(answers_.asked.request);
    requests.back().prompt = answers_.prompt_of(i).tokens;
    requests.back().sampler.stream = i % static_cast<std::size_t>(answers_.asked.answers);
    requests.back().client = client_;
  }
  service_.engine->post(model_.scheduler, [self, requests = std::move(requests)](llm::Scheduler& scheduler) mutable {
    http::Server& server = self->service_.server;
    const auto give_up = [&](int status, const std::string& sentence) {
      for (const auto id : *self->ids_) scheduler.cancel(id);
      server.post([self, status, sentence] { self->refuse(ApiError(status, sentence)); });
    };
    if (scheduler.is_full()) return give_up(429, "too many requests wait; come again later");
    try {
      for (std::size_t i = 0; i < requests.size(); ++i)
        self->ids_->push_back(scheduler.submit(std::move(requests[i]), [self, i](const llm::News& news) {
          self->service_.server.post([self, i, news] { self->hear(i, news); });
        }));
    } catch (const formats::Error& error) {
      give_up(400, error.what());
    }
  });
  patience_ =
      service_.server.after(service_.queue_seconds, [weak = weak_from_this(), seconds = service_.queue_seconds] {
        const auto late = weak.lock();
        if (!late || late->is_over_ || late->has_started_) return;
        late->stop_work();
        late->refuse(
            ApiError(503, joined("the request waited for ", seconds, " seconds and was not begun; come again later")));
      });
}

void Completion::stop_work() {
  service_.engine->post(model_.scheduler, [ids = ids_](llm::Scheduler& scheduler) {
    for (const auto id : *ids) scheduler.cancel(id);
  });
}

void Completion::cancel(const std::string& why) {
  if (is_over_) return;
  stop_work();
  for (std::size_t i = 0; i < answers_.choices.size(); ++i) {
    Choice& choice = answers_.choices[i];
    if (!choice.finish.empty()) continue;
    if (answers_.is_chat()) tell(i, choice.stream.end(), {});
    choice.finish = why;
    finish_choice(i);
  }
}

Json Completion::state() const {
  const Usage usage = answers_.usage();
  return {{"id", id()},
          {"model", model_.name},
          {"state", !has_started_        ? "waiting"
                    : usage.written == 0 ? "reading"
                                         : "answering"},
          {"client", client_},
          {"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.written},
          {"seconds", seconds_since(begin_)}};
}

/// Ends a request that cannot be answered.
void Completion::refuse(const ApiError& error) {
  if (is_over_) return;
  is_over_ = true;
  patience_ = nullptr;
  if (has_begun_) {
    exchange_->write(form_->failure(error));
    exchange_->end();
  } else {
    refuse_(error);
  }
  ended_({id(), model_.name, error.status, {}, seconds_since(begin_), error.what(), ""});
}

void Completion::time(Choice& choice) {
  const auto now = Clock::now();
  if (choice.tokens == 0)
    service_.metrics.first_token.add(seconds_since(begin_));
  else
    service_.metrics.next_token.add(std::chrono::duration<double>(now - choice.last).count());
  choice.last = now;
}

void Completion::hear(std::size_t at, const llm::News& news) {
  if (is_over_) return;
  Choice& choice = answers_.choices[at];
  if (news.has_started || news.finish) choice.cached = news.cached;
  if (news.has_started) {
    has_started_ = true;
    patience_ = nullptr;
    return;
  }
  if (!news.error.empty()) {
    stop_work();
    return refuse(ApiError(500, news.error));
  }
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
  exchange_->write(form_->tell(at, parts, chances));
}

void Completion::begin_stream() {
  if (std::exchange(has_begun_, true)) return;
  exchange_->begin("text/event-stream", {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
  exchange_->write(form_->begin());
}

void Completion::finish_choice(std::size_t at) {
  if (answers_.asked.streams) {
    begin_stream();
    exchange_->write(form_->end_of(at));
  }
  if (--open_ == 0) finish();
}

void Completion::finish() {
  is_over_ = true;
  patience_ = nullptr;
  if (answers_.asked.streams) {
    exchange_->write(form_->end());
    exchange_->end();
  } else {
    exchange_->answer(200, "application/json", json_text(form_->whole()));
  }
  const Choice& first = answers_.choices.front();
  Ended ended{id(), model_.name, 200, answers_.usage(), seconds_since(begin_), first.finish, ""};
  for (const Piece& piece : first.pieces) ended.text += piece.text;
  service_.metrics.whole_request.add(ended.seconds);
  ended_(ended);
}

}  // namespace bie::cli
