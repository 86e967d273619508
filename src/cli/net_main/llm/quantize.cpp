// The work of bie quantize on language models.
#include "bie/llm/quantize.h"

#include <CLI/Error.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>

#include "bie/formats/error.h"
#include "bie/formats/new_folder.h"
#include "bie/formats/replacing_file.h"
#include "bie/formats/written_types.h"
#include "bie/llm/size_plan.h"
#include "cli/llm/language.h"
#include "cli/net_main/llm/byte_size.h"
#include "cli/net_main/llm/loaded_language.h"
#include "cli/net_main/llm/type_options.h"
#include "cli/net_main/other_half.h"
#include "cli/support/command_files.h"
#include "cli/support/inspect_weights.h"
#include "cli/support/interrupt.h"
#include "cli/support/log.h"
#include "cli/support/progress_bar.h"
#include "cli/support/result.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

void read_files(const std::string& model, CommandFiles* files) {
  std::error_code error;
  if (std::filesystem::is_directory(model, error))
    files->reads_folder(model, "the model's folder");
  else
    files->reads(model, "the model's file");
  for (std::filesystem::directory_iterator at(model, error), last; !error && at != last; at.increment(error))
    files->reads(at->path().string(), "a file of the model");
}

constexpr std::int64_t usual_tokens = 8192, usual_window = 512;

/// The texts of the options tell this of a model's matrices.
struct Statistics {
  std::optional<llm::Importance> importance;  ///< for a search; without it numbers are rounded to the nearest
  std::optional<llm::Calibration> text;
};

void check_method(const QuantizeArguments& a) {
  const bool has_text = !a.texts.empty();
  if (a.method == "nearest" && ((has_text && !has_size(a)) || !a.imatrix.empty()))
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
  Statistics made;
  if (a.method == "gptq" || has_size(a)) {
    const llm::Config config = llm::read_config(model);
    made.text = text_of(a, llm::tokenizer_of(model, config.vocabulary), config.context);
  }
  if (a.method == "gptq" || a.method == "nearest" || writes_plan(a)) return made;
  if (!a.texts.empty())
    made.importance = importance_of(a, global);
  else if (!a.imatrix.empty())
    made.importance = llm::load_importance(a.imatrix);
  else if (a.method == "search")
    made.importance.emplace();
  return made;
}

Json plan_json(const std::vector<std::pair<std::string, std::string>>& types) {
  Json list = Json::array();
  for (const auto& [name, type] : types) list.push_back({{"name", name}, {"type", type}});
  return list;
}

std::int64_t weights_of(const llm::ModelFile& model) {
  std::int64_t count = 0;
  for (const formats::GgufTensor& tensor : model.gguf.tensors) count += tensor.count();
  for (const auto& [name, layer] : model.codes) count += layer.in_features * layer.out_features;
  for (const auto& [name, layer] : model.ternary) count += layer.in_features * layer.out_features;
  return count;
}

/// The plan for the size, as a plan by names.
llm::SizePlan planned(const QuantizeArguments& a, const llm::ModelFile& model, llm::ModelFormat format,
                      const Statistics& statistics, const Global& global, const kernels::Parallel& parallel) {
  llm::SizeOptions options;
  options.format = format;
  options.fixed = named_types(a);
  options.text = *statistics.text;
  options.search = a.method != "nearest";
  options.file_bytes = a.bits > 0 ? static_cast<std::int64_t>(a.bits * static_cast<double>(weights_of(model)) / 8)
                                  : bytes_of_size("--size", a.size);
  ProgressBar bar("plan");
  options.progress = [&](double done) {
    if (was_interrupted()) throw Interrupted("interrupted; nothing is written");
    if (!global.quiet) bar.show(done, "what each layer may lose");
  };
  return llm::plan_for_size(model, options, parallel);
}

void save_plan(const QuantizeArguments& a, const llm::SizePlan& plan, double seconds, const Global& global) {
  std::vector<std::pair<std::string, std::string>> types;
  for (const auto& [name, type] : plan.types) types.emplace_back(name, type->name);
  const Json json = {{"file_bytes", plan.file_bytes}, {"divergence", plan.divergence}, {"plan", plan_json(types)}};
  formats::ReplacingFile out("plan", a.out);
  const std::string text = json.dump(1) + "\n";
  out.write(text.data(), std::ssize(text));
  out.commit();
  if (global.json) {
    print_json("quantize", {{"file", a.out},
                            {"file_bytes", plan.file_bytes},
                            {"divergence", plan.divergence},
                            {"seconds", seconds},
                            {"plan", plan_json(types)}});
    return;
  }
  std::printf("%s: a plan for %.1f MB, whose layers alone lose %.4f nats; %.1f s\n", printable(a.out).c_str(),
              static_cast<double>(plan.file_bytes) / 1e6, plan.divergence, seconds);
}

}  // namespace

void quantize_language(const QuantizeArguments& arguments, const Global& global) {
  QuantizeArguments a = arguments;
  const bool is_folder = !a.out.ends_with(".gguf") && !writes_plan(a);
  while (is_folder && a.out.size() > 1 && a.out.ends_with('/')) a.out.pop_back();
  if (!is_language_model(a.model) && std::filesystem::exists(a.model))
    throw std::runtime_error(a.model +
                             ": expected a GGUF file or a folder with a tokenizer; bie quantize of nets needs the "
                             "training half of bie, which has torch: " +
                             without_other_half());
  check_type_options(a);
  check_method(a);
  CommandFiles files;
  read_files(a.model, &files);
  files.reads(a.texts, "the text of --calibrate");
  if (a.texts.empty()) files.reads(a.imatrix, "the file of --imatrix");
  files.reads(a.plan, "the file of --plan");
  if (is_folder) {
    files.fills("--out", a.out, {});
    static_cast<void>(formats::new_folder_path(a.out));  // refused before the work, not after it
  } else {
    files.writes("--out", a.out);
  }
  if (!a.texts.empty()) files.writes("--imatrix", a.imatrix);
  llm::QuantizeOptions options;
  if (is_folder || !a.format.empty())
    options.format = a.format == "gptq" ? llm::ModelFormat::gptq : llm::ModelFormat::folder;
  options.plan = a.plan.empty() ? named_types(a) : read_plan(a);
  options.plan.type = formats::written_type(a.type);
  const llm::ModelFile model = llm::open_model(a.model);
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds_passed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const auto pool = pool_of(global);
  const Statistics statistics = statistics_of(a, model, global);
  const InterruptWatch watch;
  if (has_size(a)) {
    const llm::SizePlan plan = planned(a, model, options.format, statistics, global, pool->parallel());
    if (writes_plan(a)) {
      save_plan(a, plan, seconds_passed(), global);
      return;
    }
    options.plan.keep = plan.types;
  }
  if (statistics.importance) options.importance = &*statistics.importance;
  if (a.method == "gptq") options.gptq = &*statistics.text;
  ProgressBar bar("quantize");
  options.progress = [&](double done, const std::string& next) {
    if (was_interrupted())
      throw Interrupted(options.keeps_parts()
                            ? "interrupted; the same command goes on from the matrices in " + a.out + ".parts"
                            : "interrupted; nothing is written");
    if (!global.quiet) bar.show(done, next);
  };
  const llm::Quantized made = llm::quantize(model, a.out, options, pool->parallel());
  const double seconds = seconds_passed();
  bar.clear();
  for (const auto& [name, type] : made.unfit)
    log::warn(name + " is " + type + ", as its rows fit no block of the type");
  if (global.json) {
    print_json("quantize", {{"file", a.out},
                            {"file_bytes", made.file_bytes},
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
