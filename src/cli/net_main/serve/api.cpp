#include "cli/net_main/serve/api.h"

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "bie/formats/error.h"
#include "cli/net_main/serve/api_error.h"
#include "cli/net_main/serve/completion.h"
#include "cli/net_main/serve/embeddings.h"
#include "cli/net_main/serve/fields.h"
#include "cli/net_main/serve/page.h"
#include "cli/support/build_info.h"
#include "cli/support/text.h"
#include "formats/lower.h"

namespace bie::cli {
namespace {

using formats::joined;
using ExchangePointer = std::shared_ptr<http::Exchange>;

constexpr const char* json_type = "application/json";

/// The type of a body, without its parameters.
std::string media_type(const std::string& field) {
  const std::string type = formats::lower(field.substr(0, field.find(';')));
  return type.substr(0, type.find_last_not_of(" \t") + 1);
}

int digit_of(char c) {
  const std::string_view digits = "0123456789abcdef";
  const auto at = digits.find(c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

/// A piece of a path, whose %XX are bytes.
std::string unescaped(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_escape =
        text[i] == '%' && i + 2 < text.size() && digit_of(text[i + 1]) >= 0 && digit_of(text[i + 2]) >= 0;
    bytes += is_escape ? static_cast<char>(16 * digit_of(text[i + 1]) + digit_of(text[i + 2])) : text[i];
    if (is_escape) i += 2;
  }
  return bytes;
}

Json error_of(const std::string& path, const ApiError& error) {
  return path.rfind("/v1/messages", 0) == 0 ? anthropic_error(error) : openai_error(error);
}

const ChatPrompts& prompts_of(const ServedModel& model) {
  if (!model.prompts)
    throw ApiError(400, "the model's file has no chat template; bie serve --template names a file that holds one");
  return *model.prompts;
}

std::vector<std::int32_t> read_text(const ServedModel& model, const AskedText& text) {
  if (const auto* const tokens = std::get_if<std::vector<std::int32_t>>(&text)) return *tokens;
  return tokens_of(model.tokenizer(), std::get<std::string>(text), /*special=*/true);
}

/// @param field  that named the text.
void check_length(const ServedModel& model, const char* field, const std::vector<std::int32_t>& tokens) {
  const auto size = static_cast<std::int64_t>(tokens.size());
  if (size == 0) throw ApiError(400, joined(field, ": expected one token at least, got none"), field);
  if (size > model.context)
    throw ApiError(400, joined(field, ": expected at most ", model.context, " tokens, the context, got ", size), field,
                   "context_length_exceeded");
}

std::vector<ReadPrompt> read_prompts(const ServedModel& model, const Interface& interface, const Asked& asked) {
  std::vector<ReadPrompt> read;
  if (!asked.messages.is_null()) {
    text::ChatPrompt prompt = prompts_of(model).prompt(asked.messages, nullptr, asked.variables);
    read.push_back({std::move(prompt.tokens), "", prompt.ends_in_thought});
  }
  for (const AskedText& prompt : asked.prompts) {
    std::vector<std::int32_t> tokens = read_text(model, prompt);
    const auto* const given = std::get_if<std::string>(&prompt);
    const std::string text = given != nullptr ? *given : text::valid_utf8(model.tokenizer().decode(tokens));
    read.push_back({std::move(tokens), text, false});
  }
  for (const ReadPrompt& prompt : read) check_length(model, interface.prompt, prompt.tokens);
  return read;
}

/// Clients of green-bit-llm, whose paths name the model, send "stream" as a text too.
Json with_flag_of_text(Json body) {
  const auto stream = body.find("stream");
  if (stream == body.end() || !stream->is_string()) return body;
  const std::string word = formats::lower(stream->get<std::string>());
  if (word == "true" || word == "false") *stream = word == "true";
  return body;
}

Json description_of(const ServedModel& model) {
  return {
      {"id", model.name}, {"object", "model"}, {"created", 0}, {"owned_by", "bie"}, {"max_model_len", model.context}};
}

}  // namespace

std::string refusal_text(const std::string& path, int status, const std::string& sentence) {
  return json_text(error_of(path, ApiError(status, sentence)));
}

struct Api::Impl {
  Impl(Service& of, const Access& may, const RequestLog& tells) : service(of), access(may), log(tells) {}

  /// A request that is being handled. `rest` stands for the * of its route.
  struct Call {
    http::Request request;
    ExchangePointer exchange;
    std::string client, path, rest;
  };
  using CallPointer = std::shared_ptr<const Call>;
  struct Route {
    const char *method, *path;  ///< a * in the path stands for one character at least
    void (Impl::*handle)(const CallPointer&);
    bool is_open;  ///< without a key
  };
  static const std::vector<Route>& routes();
  static bool matches(const std::string& path, std::string_view pattern, std::string* rest);

  void handle(http::Request request, const ExchangePointer& exchange);
  void dispatch(Call call);
  void answer(const Call& call, int status, const Json& json, const http::Headers& headers = {});
  void send_refusal(const Call& call, const ApiError& error);
  void refuse(const Call& call, const ApiError& error);
  /// Has `make` done beside the server's loop with the body and the model that it names, then `take` in the loop with
  /// what it returned.
  template <class Make, class Take>
  void with_body(const CallPointer& call, Make make, Take take);
  /// Answers with what `make` returns.
  void answer_of_body(const CallPointer& call, Json (*make)(const ServedModel& model, const Json& body));
  const ServedModel& model_of(const Json& body, const std::string& named) const;

  void page(const CallPointer& call);
  void health(const CallPointer& call) { answer(*call, 200, {{"status", "ok"}}); }
  void props(const CallPointer& call);
  void list_models(const CallPointer& call);
  void show_model(const CallPointer& call) { answer(*call, 200, description_of(model_of(Json::object(), call->rest))); }
  void metrics(const CallPointer& call);
  void chat(const CallPointer& call) { complete(call, chat_interface); }
  void completion(const CallPointer& call) { complete(call, completion_interface); }
  void response(const CallPointer& call) { complete(call, response_interface); }
  void message(const CallPointer& call) { complete(call, message_interface); }
  void count_tokens(const CallPointer& call);
  void tokenize(const CallPointer& call);
  void detokenize(const CallPointer& call);
  void apply_template(const CallPointer& call);
  void list_requests(const CallPointer& call);
  void end_request(const CallPointer& call);
  void complete(const CallPointer& call, const Interface& interface);
  /// Fields of a request for vectors, and the tokens of its texts.
  template <class Asked>
  using AskedTexts = std::pair<Asked, std::vector<std::vector<std::int32_t>>>;
  template <class Made, class Asked>
  void answer_vectors(const CallPointer& call, AskedTexts<Asked> (*read)(const ServedModel& model, const Json& body));
  void embed(const CallPointer& call);
  void rank(const CallPointer& call);
  Work::Origin origin_of(const CallPointer& call);
  void begin(const std::shared_ptr<Work>& work);

  Service& service;
  Access access;
  RequestLog log;
  std::map<std::string, std::weak_ptr<Work>> running;
  boost::asio::thread_pool readers{1};  ///< texts become tokens here, so that a long one delays no answer
};

Api::Api(Service& service, const Access& access, const RequestLog& log)
    : impl_(std::make_unique<Impl>(service, access, log)) {}
Api::~Api() {
  impl_->readers.stop();
  impl_->readers.join();
}
void Api::handle(http::Request request, const std::shared_ptr<http::Exchange>& exchange) {
  impl_->handle(std::move(request), exchange);
}

/// The first that matches is taken.
const std::vector<Api::Impl::Route>& Api::Impl::routes() {
  static const std::vector<Route> all = {{"GET", "/", &Impl::page, true},
                                         {"GET", "/health", &Impl::health, true},
                                         {"GET", "/props", &Impl::props, false},
                                         {"GET", "/v1/models", &Impl::list_models, false},
                                         {"GET", "/v1/models/*", &Impl::show_model, false},
                                         {"GET", "/metrics", &Impl::metrics, false},
                                         {"POST", "/v1/chat/completions", &Impl::chat, false},
                                         {"POST", "/v1/completions", &Impl::completion, false},
                                         {"POST", "/v1/responses", &Impl::response, false},
                                         {"POST", "/v1/messages", &Impl::message, false},
                                         {"POST", "/v1/messages/count_tokens", &Impl::count_tokens, false},
                                         {"POST", "/v1/*/chat/completions", &Impl::chat, false},
                                         {"POST", "/v1/*/completions", &Impl::completion, false},
                                         {"POST", "/v1/embeddings", &Impl::embed, false},
                                         {"POST", "/v1/rerank", &Impl::rank, false},
                                         {"POST", "/tokenize", &Impl::tokenize, false},
                                         {"POST", "/detokenize", &Impl::detokenize, false},
                                         {"POST", "/apply-template", &Impl::apply_template, false},
                                         {"GET", "/v1/requests", &Impl::list_requests, false},
                                         {"DELETE", "/v1/requests/*", &Impl::end_request, false}};
  return all;
}

bool Api::Impl::matches(const std::string& path, std::string_view pattern, std::string* rest) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return path == pattern;
  const std::string_view before = pattern.substr(0, star), behind = pattern.substr(star + 1);
  if (path.size() <= before.size() + behind.size() || path.compare(0, star, before) != 0 ||
      path.compare(path.size() - behind.size(), behind.size(), behind) != 0)
    return false;
  *rest = unescaped(std::string_view(path).substr(star, path.size() - before.size() - behind.size()));
  return true;
}

void Api::Impl::handle(http::Request request, const ExchangePointer& exchange) {
  exchange->add_headers(access.headers_for(request));
  // Metrics count by the paths of routes: a client cannot invent others.
  dispatch({std::move(request), exchange, "", "other", ""});
}

void Api::Impl::dispatch(Call call) {
  const http::Request& request = call.request;
  if (request.method == "OPTIONS")
    if (const http::Headers headers = access.preflight_headers(); !headers.empty())
      return call.exchange->answer(204, json_type, "", headers);
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  std::string allowed;
  try {
    for (const Route& route : routes()) {
      if (!matches(request.path, route.path, &call.rest)) continue;
      call.path = route.path;
      if (method != route.method) {
        allowed = route.method;
        continue;
      }
      if (!route.is_open) {
        access.check_origin(request);
        call.client = access.client_of(request);
      }
      // A web page of another server can send other types without being asked for leave.
      if (method == "POST" && media_type(request.content_type) != json_type)
        throw ApiError(415, joined("expected Content-Type: application/json, got ",
                                   request.content_type.empty() ? "none" : formats::in_quotes(request.content_type)));
      return (this->*route.handle)(std::make_shared<const Call>(call));
    }
    if (!allowed.empty()) {
      call.exchange->add_headers({{"Allow", allowed}});
      throw ApiError(405, joined("expected ", allowed, ", got ", printable(request.method)));
    }
    throw ApiError(404, "there is nothing at this path; GET / is a chat, and docs/serve.md names the paths");
  } catch (const ApiError& error) {
    refuse(call, error);
  } catch (const std::exception& error) {
    refuse(call, ApiError(500, error.what()));
  }
}

void Api::Impl::answer(const Call& call, int status, const Json& json, const http::Headers& headers) {
  ++service.metrics.requests[{call.path, status}];
  call.exchange->answer(status, json_type, json_text(json), headers);
}

void Api::Impl::send_refusal(const Call& call, const ApiError& error) {
  http::Headers headers;
  if (error.status == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status == 429 || error.status == 503) headers.emplace_back("Retry-After", "1");
  call.exchange->answer(error.status, json_type, json_text(error_of(call.request.path, error)), headers);
}

void Api::Impl::refuse(const Call& call, const ApiError& error) {
  ++service.metrics.requests[{call.path, error.status}];
  send_refusal(call, error);
}

const ServedModel& Api::Impl::model_of(const Json& body, const std::string& named) const {
  if (service.models.size() == 1) return *service.models.front();
  const std::string name = named.empty() ? Fields(body).text("model", "") : named;
  std::string names;
  for (const auto& model : service.models) {
    if (model->name == name) return *model;
    names += (names.empty() ? "" : ", ") + formats::in_quotes(model->name);
  }
  throw ApiError(404,
                 joined("model: expected one of ", names, ", got ", name.empty() ? "none" : formats::in_quotes(name)),
                 "model", "model_not_found");
}

template <class Make, class Take>
void Api::Impl::with_body(const CallPointer& call, Make make, Take take) {
  boost::asio::post(readers, [this, call, make = std::move(make), take = std::move(take)] {
    std::optional<ApiError> refusal;
    try {
      const Json body = body_object(call->request.body);
      const ServedModel& model = model_of(body, call->rest);
      service.server.post([take, &model, made = make(model, body)]() mutable { take(model, std::move(made)); });
    } catch (const ApiError& error) {
      refusal = error;
    } catch (const formats::Error& error) {
      refusal = ApiError(400, error.what());
    } catch (const std::exception& error) {
      refusal = ApiError(500, error.what());
    }
    if (refusal) service.server.post([this, call, refusal] { refuse(*call, *refusal); });
  });
}

void Api::Impl::answer_of_body(const CallPointer& call, Json (*make)(const ServedModel& model, const Json& body)) {
  with_body(call, make, [this, call](const ServedModel&, const Json& json) { answer(*call, 200, json); });
}

void Api::Impl::page(const CallPointer& call) {
  ++service.metrics.requests[{call->path, 200}];
  call->exchange->answer(
      200, "text/html; charset=utf-8", std::string(chat_page()),
      {{"Content-Security-Policy",
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
       {"Referrer-Policy", "no-referrer"}});
}

void Api::Impl::props(const CallPointer& call) {
  Json models = Json::array();
  for (const auto& model : service.models)
    models.push_back({{"id", model->name},
                      {"context", model->context},
                      {"chat", model->prompts.has_value()},
                      {"embeddings", gives_embeddings(*model)},
                      {"rerank", model->rank_template.has_value()}});
  answer(*call, 200, {{"models", models}, {"version", build_info()["version"]}});
}

void Api::Impl::list_models(const CallPointer& call) {
  Json models = Json::array();
  for (const auto& model : service.models) models.push_back(description_of(*model));
  answer(*call, 200, {{"object", "list"}, {"data", models}});
}

void Api::Impl::metrics(const CallPointer& call) {
  ++service.metrics.requests[{call->path, 200}];
  service.engine->post([&service = service, call](const Engine::Schedulers& schedulers) {
    std::vector<std::pair<std::string, llm::SchedulerCounts>> counts;
    for (const auto& model : service.models) counts.emplace_back(model->name, schedulers[model->scheduler]->counts());
    service.server.post([&service, call, counts] {
      call->exchange->answer(200, "text/plain; version=0.0.4",
                             service.metrics.text(counts, service.server.connections()));
    });
  });
}

void Api::Impl::complete(const CallPointer& call, const Interface& interface) {
  struct Read {
    Asked asked;
    std::vector<ReadPrompt> prompts;
  };
  const auto make = [&interface, of_path = !call->rest.empty()](const ServedModel& model, const Json& body) -> Read {
    Read read;
    read.asked = interface.read(of_path ? with_flag_of_text(body) : body, model.vocabulary());
    try {
      read.prompts = read_prompts(model, interface, read.asked);
    } catch (const formats::Error& error) {
      throw ApiError(400, error.what(), interface.prompt);
    }
    return read;
  };
  with_body(call, make, [this, call, &interface](const ServedModel& model, Read read) {
    begin(std::make_shared<Completion>(service, model, interface, std::move(read.asked), std::move(read.prompts),
                                       origin_of(call)));
  });
}

Work::Origin Api::Impl::origin_of(const CallPointer& call) {
  return {call->client, call->exchange, [this, call](const ApiError& error) { send_refusal(*call, error); },
          [this](std::function<void()> work) { boost::asio::post(readers, std::move(work)); },
          [this, call](const Ended& ended) {
            ++service.metrics.requests[{call->path, ended.status}];
            log.add(call->request.path, call->client, ended);
            running.erase(ended.id);
          }};
}

void Api::Impl::begin(const std::shared_ptr<Work>& work) {
  running[work->id()] = work;
  work->start();
}

template <class Made, class Asked>
void Api::Impl::answer_vectors(const CallPointer& call, AskedTexts<Asked> (*read)(const ServedModel&, const Json&)) {
  with_body(call, read, [this, call](const ServedModel& model, AskedTexts<Asked> asked) {
    begin(std::make_shared<Made>(service, model, std::move(asked.first), std::move(asked.second), origin_of(call)));
  });
}

void Api::Impl::embed(const CallPointer& call) {
  answer_vectors<Embeddings, AskedEmbeddings>(call, [](const ServedModel& model, const Json& body) {
    AskedTexts<AskedEmbeddings> read{asked_embeddings(body, model), {}};
    for (const AskedText& text : read.first.texts) {
      read.second.push_back(read_text(model, text));
      check_length(model, "input", read.second.back());
    }
    return read;
  });
}

void Api::Impl::rank(const CallPointer& call) {
  answer_vectors<Ranks, AskedRanks>(call, [](const ServedModel& model, const Json& body) {
    AskedTexts<AskedRanks> read{asked_ranks(body, model), {}};
    for (const std::string& document : read.first.documents) {
      read.second.push_back(rank_prompt(model, read.first.query, document));
      check_length(model, "documents", read.second.back());
    }
    return read;
  });
}

void Api::Impl::count_tokens(const CallPointer& call) {
  answer_of_body(call, [](const ServedModel& model, const Json& body) -> Json {
    return {{"input_tokens",
             prompts_of(model).prompt(message_messages(body), nullptr, message_variables(body)).tokens.size()}};
  });
}

void Api::Impl::tokenize(const CallPointer& call) {
  answer_of_body(call, [](const ServedModel& model, const Json& body) -> Json {
    return {{"tokens", tokens_of(model.tokenizer(), Fields(body).text("content"), /*special=*/true)}};
  });
}

void Api::Impl::detokenize(const CallPointer& call) {
  answer_of_body(call, [](const ServedModel& model, const Json& body) -> Json {
    const std::vector<std::int32_t> tokens = Fields(body).tokens("tokens", model.vocabulary());
    return {{"content", text::valid_utf8(model.tokenizer().decode(tokens, /*special=*/true))}};
  });
}

void Api::Impl::apply_template(const CallPointer& call) {
  answer_of_body(call, [](const ServedModel& model, const Json& body) -> Json {
    const text::ChatPrompt prompt = prompts_of(model).prompt(chat_messages(body), nullptr, chat_variables(body));
    return {{"prompt", text::valid_utf8(model.tokenizer().decode(prompt.tokens, /*special=*/true))},
            {"tokens", prompt.tokens}};
  });
}

void Api::Impl::list_requests(const CallPointer& call) {
  Json list = Json::array();
  for (const auto& [id, weak] : running)
    if (const auto one = weak.lock(); one && one->client() == call->client) list.push_back(one->state());
  answer(*call, 200, {{"object", "list"}, {"data", list}});
}

void Api::Impl::end_request(const CallPointer& call) {
  const auto found = running.find(call->rest);
  const auto one = found == running.end() ? nullptr : found->second.lock();
  if (!one || one->client() != call->client) throw ApiError(404, "there is no such request, or it has ended");
  one->cancel();
  answer(*call, 200, {{"id", call->rest}, {"object", "request"}, {"deleted", true}});
}

}  // namespace bie::cli
