#include "cli/net_main/serve/completion.h"

#include <algorithm>
#include <ctime>
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

/// JSON has no -infinity; clients know this number for it.
double told(double logprob) { return std::max(logprob, -9999.0); }

/// The interface has one word for a full context and max_tokens, and one for an end and a stop text.
const char* finish_of(llm::Answer::Finish finish) { return finish == llm::Answer::Finish::length ? "length" : "stop"; }

std::int64_t characters_of(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace

Completion::Completion(Service& service, Asked asked, std::vector<ReadPrompt> prompts, std::string client,
                       std::shared_ptr<http::Exchange> exchange, std::function<void(const Ended&)> ended)
    : service_(service),
      asked_(std::move(asked)),
      prompts_(std::move(prompts)),
      client_(std::move(client)),
      exchange_(std::move(exchange)),
      ended_(std::move(ended)),
      id_(random_id(asked_.is_chat ? "chatcmpl-" : "cmpl-")),
      created_(static_cast<std::int64_t>(std::time(nullptr))),
      begin_(Clock::now()),
      ids_(std::make_shared<std::vector<llm::Scheduler::Id>>()),
      choices_(prompts_.size() * static_cast<std::size_t>(asked_.answers)),
      open_(choices_.size()) {
  for (std::size_t i = 0; i < choices_.size(); ++i)
    choices_[i].stream = text::ThoughtStream(prompts_[prompt_of(i)].ends_in_thought);
}

void Completion::start() {
  const auto self = shared_from_this();
  exchange_->on_gone([self] {
    if (self->is_over_) return;
    self->is_over_ = true;
    self->stop_work();
    self->ended_({self->id_, 499, 0, 0, 0, seconds_since(self->begin_), "the client left", ""});
  });
  std::vector<llm::Request> requests;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    requests.push_back(asked_.request);
    requests.back().prompt = prompts_[prompt_of(i)].tokens;
    requests.back().sampler.stream = i % static_cast<std::size_t>(asked_.answers);
    requests.back().client = client_;
  }
  service_.engine->post([self, requests = std::move(requests)](llm::Scheduler& scheduler) mutable {
    http::Server& server = self->service_.server;
    const auto give_up = [&](int status, const std::string& sentence) {
      for (const auto id : *self->ids_) scheduler.cancel(id);
      server.post([self, status, sentence] { self->refuse(status, sentence); });
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
  service_.server.after(service_.queue_seconds, [weak = weak_from_this(), seconds = service_.queue_seconds] {
    const auto late = weak.lock();
    if (!late || late->is_over_ || late->has_started_) return;
    late->stop_work();
    late->refuse(503, joined("the request waited for ", seconds, " seconds and was not begun; come again later"));
  });
}

void Completion::stop_work() {
  service_.engine->post([ids = ids_](llm::Scheduler& scheduler) {
    for (const auto id : *ids) scheduler.cancel(id);
  });
}

void Completion::cancel(const std::string& why) {
  if (is_over_) return;
  stop_work();
  for (std::size_t i = 0; i < choices_.size(); ++i)
    if (choices_[i].finish.empty()) {
      const auto held = choices_[i].stream.end();
      for (const auto& part : held) (part.is_thought ? choices_[i].thoughts : choices_[i].content) += part.text;
      if (asked_.streams && asked_.is_chat) tell_chat(i, held, Json::array());
      choices_[i].finish = why;
      finish_choice(i);
    }
}

Json Completion::state() const {
  std::int64_t prompt = 0, tokens = 0;
  for (const ReadPrompt& of : prompts_) prompt += static_cast<std::int64_t>(of.tokens.size());
  for (const Choice& choice : choices_) tokens += choice.tokens;
  return {{"id", id_},
          {"state", !has_started_ ? "waiting"
                    : tokens == 0 ? "reading"
                                  : "answering"},
          {"client", client_},
          {"prompt_tokens", prompt},
          {"completion_tokens", tokens},
          {"seconds", seconds_since(begin_)}};
}

/// Ends a request that cannot be answered.
void Completion::refuse(int status, const std::string& sentence) {
  if (is_over_) return;
  is_over_ = true;
  const Json error = {{"error",
                       {{"message", sentence},
                        {"type", status == 400   ? "invalid_request_error"
                                 : status == 500 ? "server_error"
                                                 : "overloaded_error"},
                        {"param", nullptr},
                        {"code", nullptr}}}};
  if (has_begun_) {
    exchange_->write("data: " + json_text(error) + "\n\n");
    exchange_->end();
  } else {
    http::Headers headers;
    if (status == 429 || status == 503) headers.emplace_back("Retry-After", "1");
    exchange_->answer(status, "application/json", json_text(error), headers);
  }
  ended_({id_, status, 0, 0, 0, seconds_since(begin_), sentence, ""});
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
  Choice& choice = choices_[at];
  if (news.has_started) {
    has_started_ = true;
    return;
  }
  if (!news.error.empty()) {
    stop_work();
    return refuse(500, news.error);
  }
  Json chances = Json::array();
  if (!choice.has_echoed && asked_.echoes) {
    const ReadPrompt& prompt = prompts_[prompt_of(at)];
    if (asked_.request.of_prompt) add_chance(choice, {prompt.tokens.front(), 0, {}}, chances, /*is_first=*/true);
    for (const llm::TokenChance& chance : news.of_prompt) add_chance(choice, chance, chances);
    choice.has_echoed = true;
    choice.text = prompt.text;
    if (asked_.streams) {
      tell_text(at, prompt.text, chances);
      chances = Json::array();
    }
  }
  if (news.token) {
    time(choice);
    ++choice.tokens;
  }
  if (news.chance) add_chance(choice, *news.chance, chances);
  const std::string text = text::valid_utf8(news.text);
  choice.text += text;
  if (asked_.is_chat) {
    auto parts = choice.stream.put(text);
    if (news.finish)
      for (auto& part : choice.stream.end()) parts.push_back(std::move(part));
    for (const auto& part : parts) (part.is_thought ? choice.thoughts : choice.content) += part.text;
    if (asked_.streams) tell_chat(at, parts, chances);
  } else if (asked_.streams) {
    tell_text(at, text, chances);
  }
  for (Json& chance : chances) choice.chances.push_back(std::move(chance));
  if (!news.finish) return;
  choice.cached = news.cached;
  choice.finish = finish_of(*news.finish);
  finish_choice(at);
}

std::string Completion::name_of(std::int32_t token) const {
  return text::valid_utf8(service_.tokenizer.bytes(token, /*special=*/true));
}

Json Completion::chat_chance(const llm::TokenChance& chance) const {
  const auto one = [this](std::int32_t token, double logprob) {
    const std::string_view bytes = service_.tokenizer.bytes(token, /*special=*/true);
    return Json{{"token", text::valid_utf8(bytes)},
                {"logprob", told(logprob)},
                {"bytes", std::vector<unsigned char>(bytes.begin(), bytes.end())}};
  };
  Json json = one(chance.token, chance.logprob);
  json["top_logprobs"] = Json::array();
  for (const auto& [token, logprob] : chance.likeliest) json["top_logprobs"].push_back(one(token, logprob));
  return json;
}

/// @param is_first  of the prompt: nothing stands before it that would make it likely.
void Completion::add_chance(Choice& choice, const llm::TokenChance& chance, Json& list, bool is_first) const {
  if (asked_.is_chat) {
    list.push_back(chat_chance(chance));
    return;
  }
  Json best = nullptr;
  if (!is_first && asked_.request.likeliest.value_or(0) > 0) {
    best = Json::object();
    for (const auto& [token, logprob] : chance.likeliest) best.emplace(name_of(token), told(logprob));
  }
  list.push_back({{"token", name_of(chance.token)},
                  {"logprob", is_first ? Json() : Json(told(chance.logprob))},
                  {"top", best},
                  {"offset", choice.characters}});
  choice.characters += characters_of(text::valid_utf8(service_.tokenizer.bytes(chance.token)));
}

/// As the interface writes the log-probabilities of a list of tokens; null where nobody asked.
Json Completion::chances_json(const Json& list) const {
  if (!asked_.request.likeliest) return nullptr;
  if (asked_.is_chat) return {{"content", list}};
  Json json = {{"tokens", Json::array()},
               {"token_logprobs", Json::array()},
               {"top_logprobs", Json::array()},
               {"text_offset", Json::array()}};
  for (const Json& one : list) {
    json["tokens"].push_back(one["token"]);
    json["token_logprobs"].push_back(one["logprob"]);
    json["top_logprobs"].push_back(one["top"]);
    json["text_offset"].push_back(one["offset"]);
  }
  return json;
}

Json Completion::head(const char* kind) const {
  return {{"id", id_}, {"object", kind}, {"created", created_}, {"model", service_.model_name}, {"seed", asked_.seed}};
}

Json Completion::usage() const {
  std::int64_t prompt = 0, cached = 0, written = 0;
  for (const ReadPrompt& of : prompts_) prompt += static_cast<std::int64_t>(of.tokens.size());
  for (const Choice& choice : choices_) written += choice.tokens;
  for (std::size_t i = 0; i < choices_.size(); i += static_cast<std::size_t>(asked_.answers))
    cached += choices_[i].cached;
  return {{"prompt_tokens", prompt},
          {"completion_tokens", written},
          {"total_tokens", prompt + written},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

/// One event of a stream.
void Completion::tell(std::size_t at, Json choice) {
  if (!has_begun_) {
    has_begun_ = true;
    exchange_->begin("text/event-stream", {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
    if (asked_.is_chat)
      for (std::size_t i = 0; i < choices_.size(); ++i)
        tell(i, {{"delta", {{"role", "assistant"}, {"content", ""}}}, {"finish_reason", nullptr}});
  }
  Json event = head(asked_.is_chat ? "chat.completion.chunk" : "text_completion");
  choice["index"] = at;
  event["choices"] = Json::array({std::move(choice)});
  if (asked_.tells_usage) event["usage"] = nullptr;
  exchange_->write("data: " + json_text(event) + "\n\n");
}

void Completion::tell_chat(std::size_t at, const std::vector<text::ThoughtStream::Part>& parts, const Json& chances) {
  Json logprobs = chances_json(chances);
  for (const auto& part : parts) {
    tell(at, {{"delta", {{part.is_thought ? "reasoning_content" : "content", part.text}}},
              {"logprobs", std::exchange(logprobs, nullptr)},
              {"finish_reason", nullptr}});
  }
  if (parts.empty() && !chances.empty())
    tell(at, {{"delta", {{"content", ""}}}, {"logprobs", logprobs}, {"finish_reason", nullptr}});
}

void Completion::tell_text(std::size_t at, const std::string& text, const Json& chances) {
  if (text.empty() && chances.empty()) return;
  tell(at, {{"text", text}, {"logprobs", chances_json(chances)}, {"finish_reason", nullptr}});
}

void Completion::finish_choice(std::size_t at) {
  if (asked_.streams) {
    Json last = asked_.is_chat ? Json{{"delta", Json::object()}} : Json{{"text", ""}};
    last["logprobs"] = nullptr;
    last["finish_reason"] = choices_[at].finish;
    tell(at, std::move(last));
  }
  if (--open_ == 0) finish();
}

Json Completion::whole() const {
  Json answer = head(asked_.is_chat ? "chat.completion" : "text_completion");
  answer["choices"] = Json::array();
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    Json json = {{"index", i}};
    if (asked_.is_chat) {
      json["message"] = {{"role", "assistant"}, {"content", choice.content}};
      if (!choice.thoughts.empty()) json["message"]["reasoning_content"] = choice.thoughts;
    } else {
      json["text"] = choice.text;
    }
    json["logprobs"] = chances_json(choice.chances);
    json["finish_reason"] = choice.finish;
    answer["choices"].push_back(std::move(json));
  }
  answer["usage"] = usage();
  return answer;
}

void Completion::finish() {
  is_over_ = true;
  if (asked_.streams) {
    if (asked_.tells_usage) {
      Json event = head(asked_.is_chat ? "chat.completion.chunk" : "text_completion");
      event["choices"] = Json::array();
      event["usage"] = usage();
      exchange_->write("data: " + json_text(event) + "\n\n");
    }
    exchange_->write("data: [DONE]\n\n");
    exchange_->end();
  } else {
    exchange_->answer(200, "application/json", json_text(whole()));
  }
  const Json counts = usage();
  Ended ended{id_,
              200,
              counts["prompt_tokens"],
              counts["prompt_tokens_details"]["cached_tokens"],
              counts["completion_tokens"],
              seconds_since(begin_),
              choices_.front().finish,
              choices_.front().text};
  service_.metrics.whole_request.add(ended.seconds);
  ended_(ended);
}

}  // namespace bie::cli
