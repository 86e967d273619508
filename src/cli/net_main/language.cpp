// The work of bie generate and bie tokenize.
#include "cli/llm/language.h"

#include <CLI/Error.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "bie/formats/error.h"
#include "bie/formats/mapped_file.h"
#include "bie/llm/generate.h"
#include "cli/support/command_files.h"
#include "cli/support/interrupt.h"
#include "cli/support/log.h"
#include "cli/support/memory.h"
#include "cli/support/result.h"
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

std::string text_of_file(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  const formats::MappedFile file("file", path);
  return {reinterpret_cast<const char*>(file.data()), static_cast<std::size_t>(file.size())};
}

std::vector<std::string> lines_of_file(const std::string& path) {
  std::string text = text_of_file(path);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    if (!lines.back().empty() && lines.back().back() == '\r') lines.back().pop_back();
    at = end + 1;
  }
  if (lines.empty()) formats::fail_file("file", path, "expected a prompt in each line, got no line");
  return lines;
}

std::vector<std::int32_t> tokens_of(const text::Tokenizer& tokenizer, const std::string& text, bool special) {
  std::vector<std::int32_t> tokens;
  if (tokenizer.begin()) tokens.push_back(*tokenizer.begin());
  const std::vector<std::int32_t> of_text = tokenizer.encode(text, special);
  tokens.insert(tokens.end(), of_text.begin(), of_text.end());
  return tokens;
}

/// As it is, at once.
void print_text(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

Json answer_json(const llm::Answer& answer, double load, const llm::Times& times, bool with_logprobs) {
  Json json = {{"prompt_tokens", answer.prompt},     {"tokens", answer.tokens}, {"text", text::valid_utf8(answer.text)},
               {"finish", llm::name(answer.finish)}, {"load_seconds", load},    {"prompt_seconds", times.prompt},
               {"generate_seconds", times.generate}};
  if (!with_logprobs) return json;
  json["logprobs"] = Json::array();
  for (const auto& best : answer.logprobs) {
    Json of_token = Json::array();
    for (const auto& [token, value] : best) of_token.push_back(Json::array({token, value}));
    json["logprobs"].push_back(std::move(of_token));
  }
  return json;
}

void tell_speeds(const std::vector<llm::Answer>& answers, double load, const llm::Times& times) {
  std::size_t read = 0, written = 0, cached = 0;
  for (const llm::Answer& answer : answers) {
    cached += static_cast<std::size_t>(answer.cached);
    read += answer.prompt.size() - static_cast<std::size_t>(answer.cached);
    written += answer.tokens.size();
  }
  const auto speed = [](std::size_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
  };
  const std::string kept = cached > 0 ? format("; the cache file held %zu tokens", cached) : "";
  log::info(format("loaded in %.2f s%s; read %zu tokens, %.0f a second; wrote %zu tokens, %.1f a second", load,
                   kept.c_str(), read, speed(read, times.prompt), written, speed(written, times.generate)));
}

llm::CacheKind kind_of_cache(const GenerateArguments& a) {
  for (const llm::CacheKind kind : {llm::CacheKind::q8, llm::CacheKind::f16, llm::CacheKind::f32})
    if (a.kv == llm::name(kind)) return kind;
  return a.arithmetic == "exact" ? llm::CacheKind::f32 : llm::CacheKind::q8;
}

/// Refuses prompts and answers whose keys and values no memory holds; what nobody has bounded is taken as it is needed.
void check_memory(const llm::Session& session, const std::vector<std::vector<std::int32_t>>& prompts,
                  const llm::GenerateOptions& o) {
  const std::int64_t context = o.context > 0 ? o.context : session.model().config().context;
  std::int64_t bytes = 0;
  for (const std::vector<std::int32_t>& prompt : prompts) {
    const auto read = static_cast<std::int64_t>(prompt.size());
    const std::int64_t answer = o.tokens >= 0 ? std::min(o.tokens, context) : o.context > 0 ? context : 1;
    bytes += llm::cache_bytes(session, std::min(read + answer, context));
  }
  if (o.context > 0) log::info(format("keys and values take %.1f MB at most", static_cast<double>(bytes) / 1e6));
  const std::optional<std::int64_t> available = available_memory();
  if (available && bytes > *available)
    throw std::runtime_error(
        format("expected %.2f GB of memory for the keys and values of %zu prompts and their "
               "answers, got %.2f GB; --context and --tokens bound them",
               static_cast<double>(bytes) / 1e9, prompts.size(), static_cast<double>(*available) / 1e9));
}

}  // namespace

void generate_text(const GenerateArguments& a, const Global& global) {
  const bool is_batch = !a.batch_file.empty();
  if (a.logprobs > 0 && !global.json) throw CLI::ValidationError("--logprobs", "expected --json beside it, got none");
  if (is_batch && !a.cache.empty())
    throw CLI::ValidationError("--cache", "expected one prompt, as a file keeps that of one, got --batch");
  CommandFiles files;
  files.reads(a.model, "the model's file");
  if (a.prompt_file != "-") files.reads(a.prompt_file, "the prompt's file");
  files.writes("--cache", a.cache);
  std::vector<std::string> texts;
  if (is_batch)
    texts = lines_of_file(a.batch_file);
  else
    texts.push_back(a.prompt ? *a.prompt : text_of_file(a.prompt_file));

  const auto begin = std::chrono::steady_clock::now();
  const int threads = threads_of(global);
  const auto model = with_threads(threads, [&] {
    kernels::ThreadPool pool(threads);
    return std::make_shared<const llm::Model>(
        a.model, a.arithmetic == "exact" ? llm::Arithmetic::exact : llm::Arithmetic::int8, pool.parallel());
  });
  const text::Tokenizer tokenizer = text::gguf_tokenizer(model->file());
  const llm::Config& config = model->config();
  if (tokenizer.size() != config.vocabulary)
    formats::fail_file("GGUF file", a.model, "expected as many tokens as rows of the embedding, ", config.vocabulary,
                       ", got ", tokenizer.size());
  if (a.context > config.context)
    throw formats::Error(
        formats::joined("--context: expected at most ", config.context, ", the context of the model, got ", a.context));
  llm::Session session = with_threads(threads, [&] { return llm::Session(model, threads, kind_of_cache(a)); });
  const double load = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  llm::GenerateOptions options;
  options.tokens = a.tokens;
  options.context = a.context;
  options.logprobs = a.logprobs;
  options.stops = a.stops;
  options.cache_file = a.cache;
  options.sampler = {static_cast<float>(a.temperature),    a.top_k, a.top_p, a.min_p,
                     static_cast<float>(a.repeat_penalty), a.seed,  0};
  std::vector<std::vector<std::int32_t>> prompts;
  for (const std::string& text : texts) {
    prompts.push_back(tokens_of(tokenizer, text, true));
    if (prompts.back().empty())
      throw formats::Error(
          formats::joined(is_batch ? formats::joined("file ", a.batch_file, ": line ", prompts.size(), ": ") : "",
                          "expected a prompt of one token at least, got an empty text, and the model's file names no "
                          "token that begins one"));
  }
  check_memory(session, prompts, options);
  const InterruptWatch watch;
  llm::Times times;
  const bool streams = !global.json && !is_batch;
  const auto answers = llm::generate(
      session, tokenizer, prompts, options,
      [streams](std::size_t, const std::string& text) {
        if (streams) print_text(text);
      },
      [] { return !was_interrupted(); }, &times);
  if (global.json && is_batch) {
    Json list = Json::array();
    for (const llm::Answer& answer : answers) list.push_back(answer_json(answer, load, times, a.logprobs > 0));
    print_json_list("generate", list);
  } else if (global.json) {
    print_json("generate", answer_json(answers.front(), load, times, a.logprobs > 0));
  } else if (is_batch) {
    for (const llm::Answer& answer : answers) print_text(answer.text + "\n");
  } else {
    print_text("\n");
  }
  if (was_interrupted()) throw Interrupted("interrupted; the text up to here is whole");
  tell_speeds(answers, load, times);
}

void tokenize_text(const TokenizeArguments& a, const Global& global) {
  const formats::GgufFile file = formats::load_gguf(a.model);
  const text::Tokenizer tokenizer = text::gguf_tokenizer(file);
  if (a.decode) {
    std::string text = tokenizer.decode(a.tokens, /*special=*/true);
    const bool has_begin = !a.tokens.empty() && tokenizer.begin() == a.tokens.front();
    const std::size_t space = has_begin ? tokenizer.bytes(a.tokens.front(), /*special=*/true).size() : 0;
    if (tokenizer.adds_space() && space < text.size() && text[space] == ' ') text.erase(space, 1);
    if (global.json)
      print_json("tokenize", {{"text", text::valid_utf8(text)}});
    else
      print_text(text + "\n");
    return;
  }
  const std::vector<std::int32_t> tokens = tokens_of(tokenizer, a.text ? *a.text : text_of_file(a.file), !a.no_special);
  if (global.json) {
    print_json("tokenize", {{"tokens", tokens}});
    return;
  }
  for (const std::int32_t token : tokens)
    std::printf("%7d  %s\n", token, printable(std::string(tokenizer.bytes(token, /*special=*/true))).c_str());
}

}  // namespace bie::cli
