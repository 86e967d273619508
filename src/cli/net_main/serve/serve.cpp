// The work of bie serve.
#include <sys/resource.h>

#include <CLI/Error.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <utility>

#include "bie/formats/error.h"
#include "bie/formats/gguf.h"
#include "bie/llm/page_folder.h"
#include "cli/llm/language.h"
#include "cli/net_main/llm/byte_size.h"
#include "cli/net_main/serve/api.h"
#include "cli/net_main/serve/request_log.h"
#include "cli/support/command_files.h"
#include "cli/support/log.h"
#include "cli/support/memory.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

/// A connection is a descriptor: as many as the system allows.
void take_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// The name of a file without its end, or of a folder.
std::string name_of(const std::string& path) {
  const std::filesystem::path whole = std::filesystem::path(path).lexically_normal();
  const std::filesystem::path last = whole.has_filename() ? whole.filename() : whole.parent_path().filename();
  return text::valid_utf8(last.extension() == ".gguf" ? last.stem().string() : last.string());
}

std::vector<std::string> keys_of(const std::string& path) {
  std::vector<std::string> keys;
  for (const std::string& line : lines_of_file(path, "a key"))
    if (!line.empty()) keys.push_back(line);
  if (keys.empty()) formats::fail_file("file", path, "expected a key in a line at least, got none");
  return keys;
}

const std::map<std::string, llm::Pooling> poolings = {
    {"mean", llm::Pooling::mean}, {"first", llm::Pooling::first}, {"last", llm::Pooling::last}};

/// A name of a model, and its file or folder.
using NamedFile = std::pair<std::string, std::string>;

std::vector<NamedFile> files_of(const ServeArguments& a) {
  if (a.models.empty() && a.language.model.empty())
    throw CLI::RequiredError("model, or --model NAME=FILE for each of several");
  if (a.models.empty()) return {{a.name.empty() ? name_of(a.language.model) : a.name, a.language.model}};
  std::vector<NamedFile> files;
  for (const std::string& model : a.models) {
    const std::size_t equals = model.find('=');
    const std::string name = text::valid_utf8(model.substr(0, equals));
    for (const NamedFile& other : files)
      if (other.first == name)
        throw std::runtime_error("--model: expected a name of its own for each model, got " + formats::in_quotes(name) +
                                 " twice");
    files.emplace_back(name, model.substr(equals + 1));
  }
  if (files.size() > 1 && !a.chat.template_file.empty())
    throw std::runtime_error("--template: expected one model, got several, each of which has its own template");
  return files;
}

std::int64_t cache_bytes_of(const ServeArguments& a) {
  if (!a.cache_size.empty()) {
    const std::int64_t bytes = bytes_of_size("--cache-size", a.cache_size);
    check_cache_memory(bytes, "all answers, which --cache-size bounds");
    return bytes;
  }
  return available_memory().value_or(std::int64_t{4} << 30) / 2;
}

/// Whether only this machine reaches an address.
bool is_local(const std::string& host) { return host == "::1" || host.rfind("127.", 0) == 0; }

/// Null where none is asked for.
std::shared_ptr<llm::PageFolder> folder_of(const ServeArguments& a) {
  if (a.cache_folder.empty()) return nullptr;
  const std::int64_t bytes = bytes_of_size("--cache-dir-size", a.folder_size);
  return std::make_shared<llm::PageFolder>(a.cache_folder, bytes,
                                           [](const std::string& sentence) { log::warn(sentence); });
}

/// A model and its scheduler, whose pages have `cache_bytes` together.
std::pair<std::unique_ptr<ServedModel>, std::unique_ptr<llm::Scheduler>> load(
    const NamedFile& file, const ServeArguments& a, const Global& global, std::int64_t cache_bytes,
    const std::shared_ptr<llm::PageFolder>& folder) {
  LanguageOptions language = a.language;
  language.model = file.second;
  auto model = std::make_unique<ServedModel>(ServedModel{file.first, load_language(language, global)});
  if (!a.chat.template_file.empty() || text::has_chat_template(model->language.model->file().gguf))
    model->prompts.emplace(model->language, a.chat);
  const llm::Model& loaded = *model->language.model;
  model->pooling = a.pooling.empty() ? loaded.config().pooling : poolings.at(a.pooling);
  if (loaded.classifier() != nullptr && loaded.config().pooling == llm::Pooling::rank)
    model->rank_template = text::gguf_rank_template(loaded.file().gguf);
  llm::SchedulerOptions scheduling;
  scheduling.rows = a.rows;
  scheduling.pause = static_cast<double>(a.pause) / 1000;
  scheduling.cache_bytes = cache_bytes;
  scheduling.queue = a.queue;
  scheduling.context = a.language.context;
  scheduling.folder = folder;
  const std::int64_t page = model->language.session.page_bytes();
  auto scheduler = std::make_unique<llm::Scheduler>(std::move(model->language.session), model->tokenizer(), scheduling);
  model->context = scheduler->context();
  if (model->context < a.language.context)
    throw formats::Error(formats::joined("--context: expected at most ", model->context,
                                         " tokens, which --cache-size holds, got ", a.language.context));
  log::info(format("%s was loaded in %.2f s; a context of %lld tokens, %lld pages of %.2f MB", model->name.c_str(),
                   model->language.load_seconds, static_cast<long long>(model->context),
                   static_cast<long long>(cache_bytes / page), static_cast<double>(page) / 1e6));
  if (!model->prompts) log::warn(model->name + ": its file has no chat template, so that its chats are refused");
  return {std::move(model), std::move(scheduler)};
}

}  // namespace

void serve(const ServeArguments& a, const Global& global) {
  const std::vector<NamedFile> models = files_of(a);
  CommandFiles files;
  for (const NamedFile& model : models) files.reads(model.second, "the model's file");
  files.reads(a.chat.template_file, "the template's file");
  files.reads(a.key_file, "the keys' file");
  AccessOptions access;
  if (!a.key_file.empty()) access.keys = keys_of(a.key_file);
  access.allowed_origin = a.origin;
  access.is_local = is_local(a.host);
  if (a.origin.find_first_of("\r\n") != std::string::npos)
    throw std::runtime_error("--cors: expected an origin in one line, got several");
  take_descriptors();

  // Who connects while models load waits for its first answer.
  Api* api = nullptr;
  http::Limits limits;
  limits.body_bytes = static_cast<std::size_t>(a.body);
  limits.connections = a.connections;
  http::Server server(
      limits,
      [&api](http::Request request, const std::shared_ptr<http::Exchange>& exchange) {
        api->handle(std::move(request), exchange);
      },
      refusal_text);
  server.listen(a.host, a.port);

  Metrics metrics;
  Service service{{}, server, metrics, a.queue_seconds, nullptr};
  Engine::Schedulers schedulers;
  const std::int64_t cache_bytes = cache_bytes_of(a) / static_cast<std::int64_t>(models.size());
  const std::shared_ptr<llm::PageFolder> folder = folder_of(a);
  for (const NamedFile& file : models) {
    auto [model, scheduler] = load(file, a, global, cache_bytes, folder);
    model->scheduler = schedulers.size();
    service.models.push_back(std::move(model));
    schedulers.push_back(std::move(scheduler));
  }
  service.engine = std::make_unique<Engine>(std::move(schedulers));
  Api serving(service, Access(access), RequestLog{global.json, a.logs_text});
  api = &serving;
  bool stops = false;
  server.on_signal([&](int) {
    if (stops) std::_Exit(interrupted);
    stops = true;
    log::info(format("stopping; answers have %d seconds to end", a.grace));
    server.drain(a.grace);
  });
  const std::string where = formats::joined(
      "http://", a.host.find(':') == std::string::npos ? a.host : "[" + a.host + "]", ":", server.port());
  log::info("serving at " + where);
  if (access.keys.empty() && !access.is_local)
    log::warn("whoever reaches this address may use the model; --api-key-file asks for a key");
  if (global.json) {
    Json names = Json::array();
    for (const auto& model : service.models) names.push_back(model->name);
    const ServedModel& first = *service.models.front();
    print_event({{"event", "listening"},
                 {"host", a.host},
                 {"port", server.port()},
                 {"model", first.name},
                 {"context", first.context},
                 {"models", names}});
  }
  server.run();
  // Nobody hears of signals from here on: what is left to end takes seconds at most.
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { std::_Exit(interrupted); });
}

}  // namespace bie::cli
