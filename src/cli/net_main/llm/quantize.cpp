// The work of bie quantize on language models.
#include "bie/llm/quantize.h"

#include <CLI/Error.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <stdexcept>

#include "bie/formats/error.h"
#include "cli/llm/language.h"
#include "cli/net_main/llm/loaded_language.h"
#include "cli/support/command_files.h"
#include "cli/support/inspect_weights.h"
#include "cli/support/interrupt.h"
#include "cli/support/log.h"
#include "cli/support/progress_bar.h"
#include "cli/support/result.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

llm::TypePlan plan_of(const QuantizeArguments& a) {
  if (a.type.empty())
    throw CLI::ValidationError("--type", "expected one of " + llm::quantized_type_names() + ", got none");
  llm::TypePlan plan{
      llm::quantized_type(a.type), llm::quantized_type(a.embedding), llm::quantized_type(a.head), {}, a.fit};
  for (const std::string& keep : a.keep) {
    const std::size_t at = keep.rfind('=');
    const formats::GgufType* const type = at == std::string::npos ? nullptr : llm::quantized_type(keep.substr(at + 1));
    if (type == nullptr || at == 0)
      throw CLI::ValidationError("--keep", "expected PATTERN=TYPE, of a type among " + llm::quantized_type_names() +
                                               ", got " + formats::in_quotes(keep));
    plan.keep.emplace_back(keep.substr(0, at), type);
  }
  return plan;
}

void read_files(const std::string& model, CommandFiles* files) {
  std::error_code error;
  if (!std::filesystem::is_directory(model, error)) files->reads(model, "the model's file");
  for (std::filesystem::directory_iterator at(model, error), last; !error && at != last; at.increment(error))
    files->reads(at->path().string(), "a file of the model");
}

constexpr std::int64_t usual_tokens = 8192, usual_window = 512;

/// What the texts of the options say of a model's matrices.
struct Statistics {
  std::optional<llm::Importance> importance;  ///< for a search; without it numbers are rounded to the nearest
  std::optional<llm::Calibration> gptq;
};

void check_method(const QuantizeArguments& a) {
  const bool has_text = !a.texts.empty();
  if (a.method == "nearest" && (has_text || !a.imatrix.empty()))
    throw CLI::ValidationError("--method",
                               "expected search or gptq with --calibrate, search with --imatrix, got nearest");
  if (a.method == "gptq" && !a.imatrix.empty())
    throw CLI::ValidationError("--imatrix",
                               "expected --method search, got gptq, which needs more than sizes of inputs");
  if (a.method == "gptq" && !has_text) throw CLI::ValidationError("--method", "gptq needs the text of --calibrate");
  if (a.tokens > 0 && !has_text) throw CLI::ValidationError("--tokens", "needs --calibrate, whose texts it bounds");
}

/// The texts of --calibrate, at least a window of them.
llm::Calibration text_of(const QuantizeArguments& a, const text::Tokenizer& tokenizer, std::int64_t context) {
  llm::Calibration text{{}, std::min(usual_window, context)};
  for (const std::string& path : a.texts) {
    const std::vector<std::int32_t> of_text = tokenizer.opened(text_of_file(path), /*special=*/false);
    text.tokens.insert(text.tokens.end(), of_text.begin(), of_text.end());
  }
  text.tokens.resize(
      static_cast<std::size_t>(std::min(a.tokens > 0 ? a.tokens : usual_tokens, std::ssize(text.tokens))));
  if (std::ssize(text.tokens) < text.window)
    throw formats::Error(formats::joined("--calibrate: expected a text of ", text.window,
                                         " tokens at least, a window, got ", text.tokens.size()));
  return text;
}

/// Reads the texts as the model does.
llm::Importance importance_of(const QuantizeArguments& a, const Global& global) {
  LanguageOptions options;
  options.model = a.model;
  options.arithmetic = "exact";
  LoadedLanguage language = load_language(options, global);
  const llm::Calibration text = text_of(a, language.tokenizer, language.model->config().context);
  const InterruptWatch watch;
  ProgressBar bar("calibrate");
  llm::Importance importance = llm::importance_of(language.session, text.tokens, text.window, [&](std::int64_t done) {
    if (!global.quiet)
      bar.show(static_cast<double>(done) / static_cast<double>(text.tokens.size()),
               format("token %lld of %zu", static_cast<long long>(done), text.tokens.size()));
    return !was_interrupted();
  });
  bar.clear();
  if (was_interrupted()) throw Interrupted("interrupted; nothing is written");
  if (!a.imatrix.empty()) llm::save_importance(a.imatrix, importance, std::ssize(text.tokens), text.window);
  return importance;
}

Statistics statistics_of(const QuantizeArguments& a, const llm::ModelFile& model, const Global& global) {
  if (a.method == "gptq") {
    const llm::Config config = llm::read_config(model);
    return {std::nullopt, text_of(a, llm::tokenizer_of(model, config.vocabulary), config.context)};
  }
  if (!a.texts.empty()) return {importance_of(a, global), std::nullopt};
  if (!a.imatrix.empty()) return {llm::load_importance(a.imatrix), std::nullopt};
  if (a.method == "search") return {llm::Importance(), std::nullopt};
  return {};
}

Json plan_json(const std::vector<std::pair<std::string, std::string>>& types) {
  Json list = Json::array();
  for (const auto& [name, type] : types) list.push_back({{"name", name}, {"type", type}});
  return list;
}

}  // namespace

void quantize_language(const QuantizeArguments& a, const Global& global) {
  if (!is_language_model(a.model) && std::filesystem::exists(a.model))
    throw std::runtime_error(a.model +
                             ": expected a GGUF file or a folder with a tokenizer; bie quantize of nets needs the "
                             "training half of bie, which has torch: pip install bie-cli");
  check_method(a);
  llm::QuantizeOptions options{plan_of(a), nullptr, nullptr, {}};
  if (!a.out.ends_with(".gguf"))
    throw CLI::ValidationError("--out", "expected a name that ends in .gguf, got " + formats::in_quotes(a.out));
  CommandFiles files;
  read_files(a.model, &files);
  files.reads(a.texts, "the text of --calibrate");
  if (a.texts.empty()) files.reads(a.imatrix, "the file of --imatrix");
  files.writes("--out", a.out);
  if (!a.texts.empty()) files.writes("--imatrix", a.imatrix);
  const llm::ModelFile model = llm::open_model(a.model);
  const auto begin = std::chrono::steady_clock::now();
  const Statistics statistics = statistics_of(a, model, global);
  if (statistics.importance) options.importance = &*statistics.importance;
  if (statistics.gptq) options.gptq = &*statistics.gptq;
  const InterruptWatch watch;
  ProgressBar bar("quantize");
  options.progress = [&](double done, const std::string& next) {
    if (was_interrupted())
      throw Interrupted(statistics.gptq
                            ? "interrupted; the same command goes on from the matrices in " + a.out + ".parts"
                            : "interrupted; nothing is written");
    if (!global.quiet) bar.show(done, next);
  };
  const auto pool = pool_of(global);
  const llm::Quantized made = llm::quantize(model, a.out, options, pool->parallel());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  bar.clear();
  for (const auto& [name, type] : made.unfit)
    log::warn(name + " is " + type + ", as its rows fit no block of the type");
  if (global.json) {
    print_json("quantize", {{"file", a.out},
                            {"bytes", made.bytes},
                            {"bits_a_weight", made.bits_a_weight()},
                            {"seconds", seconds},
                            {"plan", plan_json(made.plan)},
                            {"unfit", plan_json(made.unfit)}});
    return;
  }
  std::map<std::string, std::int64_t> count;
  for (const auto& [name, type] : made.plan) ++count[type];
  std::string types;
  for (const auto& [type, matrices] : count)
    types += format("%s%lld %s", types.empty() ? "" : ", ", static_cast<long long>(matrices), type.c_str());
  std::printf("%s: %.1f MB, %.3f bits a weight, matrices of %s; %.1f s\n", printable(a.out).c_str(),
              static_cast<double>(made.bytes) / 1e6, made.bits_a_weight(), types.c_str(), seconds);
}

}  // namespace bie::cli
