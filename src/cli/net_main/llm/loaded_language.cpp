#include "cli/net_main/llm/loaded_language.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "bie/formats/error.h"
#include "bie/formats/mapped_file.h"
#include "cli/support/memory.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

int threads_of(const Global& global) {
  return global.threads > 0 ? global.threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// The result of `make`; a system that refuses so many threads is told in a sentence.
template <class Make>
auto with_threads(int threads, const Make& make) {
  try {
    return make();
  } catch (const std::system_error& error) {
    throw std::runtime_error(
        formats::joined("expected ", threads, " threads, the system has fewer: ", error.code().message()));
  }
}

llm::CacheKind kind_of_cache(const LanguageOptions& o) {
  for (const llm::CacheKind kind : {llm::CacheKind::q8, llm::CacheKind::f16, llm::CacheKind::f32})
    if (o.kv == llm::name(kind)) return kind;
  return o.arithmetic == "exact" ? llm::CacheKind::f32 : llm::CacheKind::q8;
}

}  // namespace

std::int64_t LoadedLanguage::context(const LanguageOptions& options) const {
  return options.context > 0 ? options.context : model->config().context;
}

LoadedLanguage load_language(const LanguageOptions& o, const Global& global) {
  const auto begin = std::chrono::steady_clock::now();
  const int threads = threads_of(global);
  llm::ModelFile file = llm::open_model(o.model);
  text::Tokenizer tokenizer = llm::tokenizer_of(file, llm::read_config(file).vocabulary);
  llm::forget_tokens(&file);
  const auto model = std::make_shared<const llm::Model>(
      std::move(file), o.arithmetic == "exact" ? llm::Arithmetic::exact : llm::Arithmetic::int8,
      pool_of(global)->parallel());
  const llm::Config& config = model->config();
  if (o.context > config.context)
    throw formats::Error(
        formats::joined("--context: expected at most ", config.context, ", the context of the model, got ", o.context));
  llm::Session session = with_threads(threads, [&] { return llm::Session(model, threads, kind_of_cache(o)); });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return {model, std::move(tokenizer), std::move(session), seconds};
}

std::unique_ptr<kernels::ThreadPool> pool_of(const Global& global) {
  const int threads = threads_of(global);
  return with_threads(threads, [threads] { return std::make_unique<kernels::ThreadPool>(threads); });
}

void check_cache_memory(std::int64_t bytes, const std::string& what) {
  const std::optional<std::int64_t> available = available_memory();
  if (available && bytes > *available)
    throw std::runtime_error(format("expected %.2f GB of memory for the keys and values of %s, got %.2f GB",
                                    static_cast<double>(bytes) / 1e9, what.c_str(),
                                    static_cast<double>(*available) / 1e9));
}

llm::GenerateOptions generate_options(const LanguageOptions& o) {
  llm::GenerateOptions options;
  options.tokens = o.tokens;
  options.context = o.context;
  options.stops = o.stops;
  options.sampler = {static_cast<float>(o.temperature),    o.top_k, o.top_p, o.min_p,
                     static_cast<float>(o.repeat_penalty), o.seed,  0};
  return options;
}

std::string text_of_file(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  const formats::MappedFile file("file", path);
  return {reinterpret_cast<const char*>(file.data()), static_cast<std::size_t>(file.size())};
}

std::vector<std::string> lines_of_file(const std::string& path, const char* what) {
  const std::string text = text_of_file(path);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    if (!lines.back().empty() && lines.back().back() == '\r') lines.back().pop_back();
    at = end + 1;
  }
  if (lines.empty()) formats::fail_file("file", path, "expected ", what, " in each line, got no line");
  return lines;
}

void print_text(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::vector<std::int32_t> tokens_of(const text::Tokenizer& tokenizer, const std::string& text, bool special) {
  std::vector<std::int32_t> tokens = tokenizer.opened(text, special);
  tokens.insert(tokens.end(), tokenizer.after().begin(), tokenizer.after().end());
  return tokens;
}

}  // namespace bie::cli
