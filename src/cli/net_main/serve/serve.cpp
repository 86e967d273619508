// The work of bie serve.
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "bie/formats/error.h"
#include "bie/formats/gguf.h"
#include "cli/llm/language.h"
#include "cli/net_main/llm/byte_size.h"
#include "cli/net_main/serve/api.h"
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

std::int64_t cache_bytes_of(const ServeArguments& a) {
  if (!a.cache_size.empty()) {
    const std::int64_t bytes = bytes_of_size("--cache-size", a.cache_size);
    check_cache_memory(bytes, "all answers, which --cache-size bounds");
    return bytes;
  }
  return available_memory().value_or(std::int64_t{4} << 30) / 2;
}

}  // namespace

void serve(const ServeArguments& a, const Global& global) {
  CommandFiles files;
  files.reads(a.language.model, "the model's file");
  files.reads(a.chat.template_file, "the template's file");
  files.reads(a.key_file, "the keys' file");
  ApiOptions options;
  if (!a.key_file.empty()) options.keys = keys_of(a.key_file);
  options.allowed_origin = a.origin;
  if (a.origin.find_first_of("\r\n") != std::string::npos)
    throw std::runtime_error("--cors: expected an origin in one line, got several");
  options.logs_text = a.logs_text;
  options.logs_json = global.json;
  take_descriptors();

  // Who connects while the model loads waits for its first answer.
  Api* api = nullptr;
  http::Limits limits;
  limits.body_bytes = static_cast<std::size_t>(a.body);
  limits.connections = a.connections;
  http::Server server(limits, [&api](http::Request request, const std::shared_ptr<http::Exchange>& exchange) {
    api->handle(std::move(request), exchange);
  });
  server.listen(a.host, a.port);

  LoadedLanguage language = load_language(a.language, global);
  std::optional<ChatPrompts> prompts;
  if (!a.chat.template_file.empty() || text::has_chat_template(language.model->file().gguf))
    prompts.emplace(language, a.chat);
  const std::int64_t page = language.session.page_bytes();
  llm::SchedulerOptions scheduling;
  scheduling.rows = a.rows;
  scheduling.pause = static_cast<double>(a.pause) / 1000;
  scheduling.cache_bytes = cache_bytes_of(a);
  scheduling.queue = a.queue;
  scheduling.context = a.language.context;
  auto scheduler = std::make_unique<llm::Scheduler>(std::move(language.session), language.tokenizer, scheduling);
  options.context = scheduler->context();
  if (options.context < a.language.context)
    throw formats::Error(formats::joined("--context: expected at most ", options.context,
                                         " tokens, which --cache-size holds, got ", a.language.context));

  Metrics metrics;
  Service service{
      a.name.empty() ? name_of(a.language.model) : a.name, language.tokenizer, server, metrics, a.queue_seconds,
      std::make_unique<Engine>(std::move(scheduler))};
  Api serving(service, prompts ? &*prompts : nullptr, options);
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
  log::info(format("%s is served at %s; loaded in %.2f s, a context of %lld tokens, %lld pages of %.2f MB",
                   service.model_name.c_str(), where.c_str(), language.load_seconds,
                   static_cast<long long>(options.context), static_cast<long long>(scheduling.cache_bytes / page),
                   static_cast<double>(page) / 1e6));
  if (!prompts) log::warn("the model's file has no chat template, so /v1/chat/completions is refused");
  if (options.keys.empty() && a.host != "127.0.0.1" && a.host != "::1")
    log::warn("whoever reaches this address may use the model; --api-key-file asks for a key");
  if (global.json)
    print_event({{"event", "listening"},
                 {"host", a.host},
                 {"port", server.port()},
                 {"model", service.model_name},
                 {"context", options.context}});
  server.run();
}

}  // namespace bie::cli
