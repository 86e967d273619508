#include "cli/net_main/serve/api.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstdio>
#include <ctime>
#include <map>
#include <optional>
#include <utility>

#include "bie/formats/error.h"
#include "cli/net_main/llm/loaded_language.h"
#include "cli/net_main/serve/api_error.h"
#include "cli/net_main/serve/page.h"
#include "cli/support/build_info.h"
#include "cli/support/log.h"
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

/// In a time that does not tell how much of it is right.
bool are_equal(const std::string& a, const std::string& b) {
  std::size_t difference = a.size() ^ b.size();
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<std::size_t>(static_cast<unsigned char>(a[i]) ^
                                           static_cast<unsigned char>(b[b.empty() ? 0 : i % b.size()]));
  return difference == 0;
}

Json error_json(const ApiError& error) {
  const char* const type = error.status == 401   ? "authentication_error"
                           : error.status < 500  ? "invalid_request_error"
                           : error.status == 503 ? "overloaded_error"
                                                 : "server_error";
  return {{"error",
           {{"message", error.what()},
            {"type", type},
            {"param", error.param.empty() ? Json() : Json(error.param)},
            {"code", error.code.empty() ? Json() : Json(error.code)}}}};
}

}  // namespace

struct Api::Impl {
  Impl(Service& of, const ChatPrompts* chat, const ApiOptions& asked) : service(of), prompts(chat), options(asked) {}

  using Call = void (Impl::*)(const http::Request&, const ExchangePointer&);
  struct Route {
    const char *method, *path;
    Call call;
    bool is_open;  ///< without a key
  };
  static const std::vector<Route>& routes();
  static bool matches(const Route& route, const http::Request& request);
  static std::string path_of(const http::Request& request);

  void handle(http::Request request, const ExchangePointer& exchange);
  void dispatch(const http::Request& request, const ExchangePointer& exchange);
  /// The name of the client: its key's number, or its address. @throws ApiError
  std::string client_of(const http::Request& request) const;
  http::Headers headers_for(const http::Request& request) const;
  void answer(const http::Request& request, const ExchangePointer& exchange, int status, const Json& json,
              const http::Headers& headers = {});
  void refuse(const http::Request& request, const ExchangePointer& exchange, const ApiError& error);
  /// Has `make` done beside the server's loop; what it returns is the answer.
  void answer_later(const http::Request& request, const ExchangePointer& exchange, std::function<Json()> make);
  void log_end(const http::Request& request, const std::string& client, const Ended& ended);

  void page(const http::Request& request, const ExchangePointer& exchange);
  void health(const http::Request& request, const ExchangePointer& exchange);
  void props(const http::Request& request, const ExchangePointer& exchange);
  void models(const http::Request& request, const ExchangePointer& exchange);
  void metrics(const http::Request& request, const ExchangePointer& exchange);
  void chat(const http::Request& request, const ExchangePointer& exchange);
  void completion(const http::Request& request, const ExchangePointer& exchange);
  void tokenize(const http::Request& request, const ExchangePointer& exchange);
  void detokenize(const http::Request& request, const ExchangePointer& exchange);
  void apply_template(const http::Request& request, const ExchangePointer& exchange);
  void list_requests(const http::Request& request, const ExchangePointer& exchange);
  void end_request(const http::Request& request, const ExchangePointer& exchange);
  void complete(const http::Request& request, const ExchangePointer& exchange, bool is_chat);

  std::int64_t vocabulary() const { return service.tokenizer.size(); }
  const ChatPrompts& chat_prompts() const {
    if (prompts == nullptr)
      throw ApiError(400, "the model's file has no chat template; bie serve --template names a file that holds one");
    return *prompts;
  }
  std::vector<ReadPrompt> read_prompts(const Asked& asked) const;

  Service& service;
  const ChatPrompts* prompts;
  ApiOptions options;
  std::map<std::string, std::weak_ptr<Completion>> running;
  boost::asio::thread_pool readers{1};  ///< texts become tokens here, so that a long one delays no other client
};

void print_event(const Json& fields) {
  print_json("serve", fields);
  std::fflush(stdout);
}

Api::Api(Service& service, const ChatPrompts* prompts, const ApiOptions& options)
    : impl_(std::make_unique<Impl>(service, prompts, options)) {}
Api::~Api() { impl_->readers.join(); }
void Api::handle(http::Request request, const std::shared_ptr<http::Exchange>& exchange) {
  impl_->handle(std::move(request), exchange);
}

const std::vector<Api::Impl::Route>& Api::Impl::routes() {
  static const std::vector<Route> all = {{"GET", "/", &Impl::page, true},
                                         {"GET", "/health", &Impl::health, true},
                                         {"GET", "/props", &Impl::props, false},
                                         {"GET", "/v1/models", &Impl::models, false},
                                         {"GET", "/metrics", &Impl::metrics, false},
                                         {"POST", "/v1/chat/completions", &Impl::chat, false},
                                         {"POST", "/v1/completions", &Impl::completion, false},
                                         {"POST", "/tokenize", &Impl::tokenize, false},
                                         {"POST", "/detokenize", &Impl::detokenize, false},
                                         {"POST", "/apply-template", &Impl::apply_template, false},
                                         {"GET", "/v1/requests", &Impl::list_requests, false},
                                         {"DELETE", "/v1/requests/", &Impl::end_request, false}};
  return all;
}

/// A path that ends in a slash has anything behind it.
bool Api::Impl::matches(const Route& route, const http::Request& request) {
  const std::string_view path = route.path;
  const bool is_prefix = path.size() > 1 && path.back() == '/';
  return is_prefix ? request.path.rfind(path, 0) == 0 : request.path == path;
}

void Api::Impl::handle(http::Request request, const ExchangePointer& exchange) {
  exchange->add_headers(headers_for(request));
  try {
    dispatch(request, exchange);
  } catch (const ApiError& error) {
    refuse(request, exchange, error);
  } catch (const std::exception& error) {
    refuse(request, exchange, ApiError(500, error.what()));
  }
}

void Api::Impl::dispatch(const http::Request& request, const ExchangePointer& exchange) {
  if (request.method == "OPTIONS" && !options.allowed_origin.empty()) {
    exchange->answer(204, json_type, "",
                     {{"Access-Control-Allow-Origin", options.allowed_origin},
                      {"Access-Control-Allow-Methods", "GET, POST, DELETE"},
                      {"Access-Control-Allow-Headers", "Authorization, Content-Type"},
                      {"Access-Control-Max-Age", "600"}});
    return;
  }
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  std::string methods;
  for (const Route& route : routes()) {
    if (!matches(route, request)) continue;
    if (method != route.method) {
      methods = route.method;
      continue;
    }
    if (!route.is_open) client_of(request);
    // A web page of another server can send other types without being asked for leave.
    if (method == "POST" && media_type(request.content_type) != json_type)
      throw ApiError(415, joined("expected Content-Type: application/json, got ",
                                 request.content_type.empty() ? "none" : formats::in_quotes(request.content_type)));
    return (this->*route.call)(request, exchange);
  }
  if (!methods.empty()) {
    exchange->add_headers({{"Allow", methods}});
    throw ApiError(405, joined("expected ", methods, ", got ", printable(request.method)));
  }
  throw ApiError(404, "there is nothing at this path; GET / is a chat, and docs/serve.md names the paths");
}

std::string Api::Impl::client_of(const http::Request& request) const {
  if (options.keys.empty()) return request.address;
  constexpr std::string_view scheme = "bearer ";
  const std::string given = formats::lower(request.authorization.substr(0, scheme.size())) == scheme
                                ? request.authorization.substr(scheme.size())
                                : std::string();
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < options.keys.size(); ++i)
    if (are_equal(options.keys[i], given)) found = i;
  if (!found)
    throw ApiError(401,
                   joined("expected Authorization: Bearer with a key of this server, got ",
                          given.empty() ? "none" : "another one"),
                   "", "invalid_api_key");
  return joined("key ", *found + 1);
}

http::Headers Api::Impl::headers_for(const http::Request& request) const {
  if (options.allowed_origin.empty() || request.origin.empty()) return {};
  return {{"Access-Control-Allow-Origin", options.allowed_origin}, {"Vary", "Origin"}};
}

/// The path that a request's route has, for metrics: a client cannot invent others.
std::string Api::Impl::path_of(const http::Request& request) {
  for (const Route& route : routes())
    if (matches(route, request)) return route.path;
  return "other";
}

void Api::Impl::answer(const http::Request& request, const ExchangePointer& exchange, int status, const Json& json,
                       const http::Headers& headers) {
  ++service.metrics.requests[{path_of(request), status}];
  exchange->answer(status, json_type, json_text(json), headers);
}

void Api::Impl::refuse(const http::Request& request, const ExchangePointer& exchange, const ApiError& error) {
  http::Headers headers;
  if (error.status == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status == 503) headers.emplace_back("Retry-After", "1");
  answer(request, exchange, error.status, error_json(error), headers);
}

void Api::Impl::answer_later(const http::Request& request, const ExchangePointer& exchange,
                             std::function<Json()> make) {
  boost::asio::post(readers, [this, request, exchange, make = std::move(make)] {
    Json json;
    std::optional<ApiError> refusal;
    try {
      json = make();
    } catch (const ApiError& error) {
      refusal = error;
    } catch (const formats::Error& error) {
      refusal = ApiError(400, error.what());
    } catch (const std::exception& error) {
      refusal = ApiError(500, error.what());
    }
    service.server.post([this, request, exchange, json = std::move(json), refusal] {
      refusal ? refuse(request, exchange, *refusal) : answer(request, exchange, 200, json);
    });
  });
}

void Api::Impl::page(const http::Request& request, const ExchangePointer& exchange) {
  ++service.metrics.requests[{request.path, 200}];
  exchange->answer(200, "text/html; charset=utf-8", std::string(chat_page()),
                   {{"Content-Security-Policy",
                     "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
                     "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
                    {"Referrer-Policy", "no-referrer"}});
}

void Api::Impl::health(const http::Request& request, const ExchangePointer& exchange) {
  answer(request, exchange, 200, {{"status", "ok"}});
}

void Api::Impl::props(const http::Request& request, const ExchangePointer& exchange) {
  const Json model = {{"id", service.model_name}, {"context", options.context}, {"chat", prompts != nullptr}};
  answer(request, exchange, 200, {{"models", Json::array({model})}, {"version", build_info()["version"]}});
}

void Api::Impl::models(const http::Request& request, const ExchangePointer& exchange) {
  const Json model = {{"id", service.model_name},
                      {"object", "model"},
                      {"created", 0},
                      {"owned_by", "bie"},
                      {"max_model_len", options.context}};
  answer(request, exchange, 200, {{"object", "list"}, {"data", Json::array({model})}});
}

void Api::Impl::metrics(const http::Request& request, const ExchangePointer& exchange) {
  ++service.metrics.requests[{request.path, 200}];
  service.engine->post([this, exchange](const llm::Scheduler& scheduler) {
    service.server.post([this, exchange, counts = scheduler.counts()] {
      exchange->answer(200, "text/plain; version=0.0.4", service.metrics.text(counts, service.server.connections()));
    });
  });
}

void Api::Impl::chat(const http::Request& request, const ExchangePointer& exchange) {
  complete(request, exchange, true);
}

void Api::Impl::completion(const http::Request& request, const ExchangePointer& exchange) {
  complete(request, exchange, false);
}

std::vector<ReadPrompt> Api::Impl::read_prompts(const Asked& asked) const {
  std::vector<ReadPrompt> read;
  if (asked.is_chat) {
    text::ChatPrompt prompt = chat_prompts().prompt(asked.messages);
    read.push_back({std::move(prompt.tokens), "", prompt.ends_in_thought});
  }
  for (const auto& prompt : asked.prompts) {
    if (const auto* const text = std::get_if<std::string>(&prompt))
      read.push_back({tokens_of(service.tokenizer, *text, /*special=*/true), *text, false});
    else
      read.push_back({std::get<1>(prompt), text::valid_utf8(service.tokenizer.decode(std::get<1>(prompt))), false});
  }
  const char* const field = asked.is_chat ? "messages" : "prompt";
  for (const ReadPrompt& prompt : read) {
    const auto size = static_cast<std::int64_t>(prompt.tokens.size());
    if (size == 0) throw ApiError(400, joined(field, ": expected one token at least, got none"), field);
    if (size > options.context)
      throw ApiError(400, joined(field, ": expected at most ", options.context, " tokens, the context, got ", size),
                     field, "context_length_exceeded");
  }
  return read;
}

void Api::Impl::complete(const http::Request& request, const ExchangePointer& exchange, bool is_chat) {
  const std::string client = client_of(request);
  boost::asio::post(readers, [this, request, exchange, client, is_chat] {
    std::optional<ApiError> refusal;
    Asked asked;
    std::vector<ReadPrompt> read;
    try {
      asked = is_chat ? asked_chat(request.body, vocabulary()) : asked_completion(request.body, vocabulary());
      read = read_prompts(asked);
    } catch (const ApiError& error) {
      refusal = error;
    } catch (const formats::Error& error) {
      refusal = ApiError(400, error.what(), is_chat ? "messages" : "prompt");
    } catch (const std::exception& error) {
      refusal = ApiError(500, error.what());
    }
    service.server.post([this, request, exchange, client, refusal, asked = std::move(asked), read = std::move(read)] {
      if (refusal) return refuse(request, exchange, *refusal);
      const auto completion = std::make_shared<Completion>(service, asked, read, client, exchange,
                                                           [this, path = request.path, client](const Ended& ended) {
                                                             ++service.metrics.requests[{path, ended.status}];
                                                             log_end({"POST", path, {}, {}, {}, {}, {}}, client, ended);
                                                             running.erase(ended.id);
                                                           });
      running[completion->id()] = completion;
      completion->start();
    });
  });
}

void Api::Impl::log_end(const http::Request& request, const std::string& client, const Ended& ended) {
  if (options.logs_json) {
    Json line = {{"event", "request"},      {"path", request.path},          {"status", ended.status},
                 {"client", client},        {"prompt_tokens", ended.prompt}, {"cached_tokens", ended.cached},
                 {"tokens", ended.written}, {"seconds", ended.seconds},      {"finish", ended.finish}};
    if (options.logs_text) line["text"] = ended.text;
    return print_event(line);
  }
  log::info(format("%s %d %s: %lld tokens read, %lld of them kept; %lld written in %.2f s: %s%s%s",
                   request.path.c_str(), ended.status, client.c_str(), static_cast<long long>(ended.prompt),
                   static_cast<long long>(ended.cached), static_cast<long long>(ended.written), ended.seconds,
                   ended.finish.c_str(), options.logs_text ? ": " : "", options.logs_text ? ended.text.c_str() : ""));
}

void Api::Impl::tokenize(const http::Request& request, const ExchangePointer& exchange) {
  answer_later(request, exchange, [this, body = request.body]() -> Json {
    return {{"tokens", tokens_of(service.tokenizer, text_field(body_object(body), "content"), /*special=*/true)}};
  });
}

void Api::Impl::detokenize(const http::Request& request, const ExchangePointer& exchange) {
  answer_later(request, exchange, [this, body = request.body]() -> Json {
    const std::vector<std::int32_t> tokens = tokens_field(body_object(body), "tokens", vocabulary());
    return {{"content", text::valid_utf8(service.tokenizer.decode(tokens, /*special=*/true))}};
  });
}

void Api::Impl::apply_template(const http::Request& request, const ExchangePointer& exchange) {
  answer_later(request, exchange, [this, body = request.body]() -> Json {
    const text::ChatPrompt prompt = chat_prompts().prompt(messages_field(body_object(body)));
    return {{"prompt", text::valid_utf8(service.tokenizer.decode(prompt.tokens, /*special=*/true))},
            {"tokens", prompt.tokens}};
  });
}

void Api::Impl::list_requests(const http::Request& request, const ExchangePointer& exchange) {
  Json list = Json::array();
  const std::string client = client_of(request);
  for (const auto& [id, weak] : running)
    if (const auto one = weak.lock(); one && one->client() == client) list.push_back(one->state());
  answer(request, exchange, 200, {{"object", "list"}, {"data", list}});
}

void Api::Impl::end_request(const http::Request& request, const ExchangePointer& exchange) {
  const std::string id = request.path.substr(std::string_view("/v1/requests/").size());
  const auto found = running.find(id);
  const auto one = found == running.end() ? nullptr : found->second.lock();
  if (!one || one->client() != client_of(request)) throw ApiError(404, "there is no such request, or it has ended");
  one->cancel("cancelled");
  answer(request, exchange, 200, {{"id", id}, {"object", "request"}, {"deleted", true}});
}

}  // namespace bie::cli
