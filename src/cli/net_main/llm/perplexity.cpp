// The work of bie perplexity.
#include "bie/llm/perplexity.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numbers>
#include <optional>
#include <utility>

#include "bie/formats/error.h"
#include "bie/llm/config.h"
#include "bie/llm/model_file.h"
#include "bie/llm/reference.h"
#include "cli/llm/language.h"
#include "cli/net_main/llm/loaded_language.h"
#include "cli/support/command_files.h"
#include "cli/support/interrupt.h"
#include "cli/support/progress_bar.h"
#include "cli/support/result.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

constexpr std::int64_t usual_window = 512;

/// A text as a model is to read it.
struct Task {
  std::vector<std::int32_t> tokens;
  std::int64_t window;
};

Task task_of(const std::string& text, const text::Tokenizer& tokenizer, std::int64_t window) {
  Task task{tokenizer.opened(text, /*special=*/false), window};
  const std::int64_t least = std::max<std::int64_t>(window, 2);
  if (std::ssize(task.tokens) < least)
    throw formats::Error(formats::joined("--data: expected a text of ", least, " tokens at least, a window, got ",
                                         task.tokens.size(), "; --context N makes windows shorter"));
  return task;
}

std::int64_t window_of(const LanguageOptions& options, const llm::Config& config) {
  return options.context > 0 ? options.context : std::min(usual_window, config.context);
}

std::vector<double> losses_of(LoadedLanguage& language, const Task& task, const char* label, const Global& global,
                              const llm::SeePredictions& see) {
  check_cache_memory(llm::cache_bytes(language.session, task.window), "a window, whose tokens --context says");
  const auto count = std::ssize(task.tokens);
  ProgressBar bar(label);
  std::vector<double> losses = llm::losses_of(
      language.session, task.tokens, task.window,
      [&](std::int64_t done) {
        if (!global.quiet)
          bar.show(static_cast<double>(done) / static_cast<double>(count - 1),
                   format("token %lld of %lld", static_cast<long long>(done), static_cast<long long>(count)));
        return !was_interrupted();
      },
      see);
  bar.clear();
  if (std::ssize(losses) < count - 1)
    throw Interrupted("interrupted; a perplexity is of the whole text, so there is none");
  return losses;
}

/// Another model reads the text with the options of this one.
llm::Reference reference_of_model(const PerplexityArguments& a, const std::string& text, const Global& global) {
  LanguageOptions options = a.language;
  options.model = a.reference;
  LoadedLanguage language = load_language(options, global);
  const llm::Config& config = language.model->config();
  const Task task = task_of(text, language.tokenizer, window_of(options, config));
  const llm::ReferenceText read{config.vocabulary, task.window, std::min(llm::usual_kept, config.vocabulary),
                                task.tokens};
  std::string rows;
  losses_of(language, task, "reference", global,
            [&](std::int64_t, std::int64_t count, const float* logits, const double* losses) {
              rows += llm::reference_rows(read, logits, losses, count, language.session.parallel());
            });
  return {read, std::move(rows)};
}

/// @throws formats::Error where a model does not read a text as the reference was made.
void expect_same_text(const PerplexityArguments& a, const llm::ReferenceText& of, std::int64_t vocabulary,
                      const Task& task) {
  const auto fail = [&](const auto&... parts) {
    throw formats::Error(formats::joined("--reference ", a.reference, ": ", parts...));
  };
  if (of.vocabulary != vocabulary) fail("expected ", vocabulary, " tokens, as the model has, got ", of.vocabulary);
  if (of.window != task.window) fail("expected windows of ", task.window, " tokens, got ", of.window);
  const auto [mine, other] = std::mismatch(task.tokens.begin(), task.tokens.end(), of.tokens.begin(), of.tokens.end());
  if (mine != task.tokens.end() || other != of.tokens.end())
    fail("expected the text of --data, as the model reads it, got another from token ", mine - task.tokens.begin(),
         " on");
}

/// The reference that the options name, which is known to be of the same text.
std::optional<llm::Reference> reference_of(const PerplexityArguments& a, const std::string& text,
                                           const Global& global) {
  if (a.reference.empty()) return std::nullopt;
  if (llm::is_reference(a.reference)) return llm::Reference::load(a.reference);
  // The model itself is checked before the reference is read.
  const llm::ModelFile file = llm::open_model(a.language.model), other = llm::open_model(a.reference);
  const llm::Config config = llm::read_config(file), config_of_other = llm::read_config(other);
  const Task task = task_of(text, llm::tokenizer_of(file, config.vocabulary), window_of(a.language, config));
  const Task task_of_other =
      task_of(text, llm::tokenizer_of(other, config_of_other.vocabulary), window_of(a.language, config_of_other));
  expect_same_text(a, {config_of_other.vocabulary, task_of_other.window, 1, task_of_other.tokens}, config.vocabulary,
                   task);
  return reference_of_model(a, text, global);
}

Json json_of(const llm::Mean& mean) {
  return mean.interval ? Json::array({mean.interval->first, mean.interval->second}) : Json(nullptr);
}

std::string interval_text(const llm::Mean& mean, double factor = 1) {
  return mean.interval ? format("   (%.4g to %.4g the 95 %% interval)", factor * mean.interval->first,
                                factor * mean.interval->second)
                       : "";
}

/// How far the model is from a reference, in a few numbers.
struct Comparison {
  llm::Mean perplexity, times, divergence, same_choice, change;
  double divergence_99, change_rms;
};

Comparison comparison_of(const llm::Reference& reference, const llm::Distance& distance) {
  std::vector<double> sorted = distance.divergence, squares = distance.right_change;
  std::sort(sorted.begin(), sorted.end());
  for (double& change : squares) change *= change;
  return {llm::exp_of(llm::mean_of(reference.losses())),
          llm::exp_of(llm::mean_of(distance.loss_change)),
          llm::mean_of(distance.divergence),
          llm::mean_of(distance.same_choice),
          llm::mean_of(distance.right_change),
          sorted[(99 * sorted.size() + 99) / 100 - 1],
          std::sqrt(llm::mean_of(squares).value)};
}

Json json_of(const Comparison& c) {
  return {{"perplexity", c.perplexity.value},
          {"times", c.times.value},
          {"times_interval", json_of(c.times)},
          {"kl_divergence", c.divergence.value},
          {"kl_divergence_interval", json_of(c.divergence)},
          {"kl_divergence_99", c.divergence_99},
          {"same_choice", c.same_choice.value},
          {"same_choice_interval", json_of(c.same_choice)},
          {"right_token_change", c.change.value},
          {"right_token_change_rms", c.change_rms}};
}

void print(const Comparison& c) {
  std::printf("reference      %.4f, its perplexity\n", c.perplexity.value);
  std::printf("times that     %.5f%s\n", c.times.value, interval_text(c.times).c_str());
  std::printf("KL divergence  %.5f nats%s; of 99 %% of the tokens at most %.4g\n", c.divergence.value,
              interval_text(c.divergence).c_str(), c.divergence_99);
  std::printf("same choice    %.2f %%%s\n", 100 * c.same_choice.value, interval_text(c.same_choice, 100).c_str());
  std::printf("right token    %+.5f of probability on average; %.5f the root of the mean square\n", c.change.value,
              c.change_rms);
}

}  // namespace

void tell_perplexity(const PerplexityArguments& a, const Global& global) {
  CommandFiles files;
  files.reads(a.language.model, "the model's file");
  if (a.data != "-") files.reads(a.data, "the text's file");
  files.reads(a.reference, "the file of --reference");
  files.writes("--save-logits", a.save_logits);
  const std::string text = text_of_file(a.data);
  const InterruptWatch watch;
  const std::optional<llm::Reference> reference = reference_of(a, text, global);
  LoadedLanguage language = load_language(a.language, global);
  const llm::Config& config = language.model->config();
  const std::int64_t own_window = window_of(a.language, config);
  const Task task =
      task_of(text, language.tokenizer,
              reference && a.language.context == 0 ? std::min(reference->text().window, config.context) : own_window);
  if (reference) expect_same_text(a, reference->text(), config.vocabulary, task);

  const llm::ReferenceText read{config.vocabulary, task.window, std::min(a.best, config.vocabulary), task.tokens};
  std::optional<llm::ReferenceWriter> writer;
  if (!a.save_logits.empty()) writer.emplace(a.save_logits, read);
  llm::Distance distance;
  const auto see = [&](std::int64_t first, std::int64_t rows, const float* logits, const double* losses) {
    const kernels::Parallel& parallel = language.session.parallel();
    if (reference) reference->compare(first, logits, losses, rows, parallel, &distance);
    if (writer) writer->write(llm::reference_rows(read, logits, losses, rows, parallel));
  };
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<double> losses = losses_of(language, task, "perplexity", global, see);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (writer) writer->commit();

  const auto predictions = std::ssize(losses);
  const llm::Mean nats = llm::mean_of(losses), perplexity = llm::exp_of(nats);
  const double bits_per_byte =
      nats.value * static_cast<double>(predictions) / std::numbers::ln2 / static_cast<double>(text.size());
  if (global.json) {
    Json json = {{"perplexity", perplexity.value}, {"interval", json_of(perplexity)},
                 {"tokens", predictions},          {"nats", nats.value},
                 {"bits_per_byte", bits_per_byte}, {"bytes", text.size()},
                 {"context", task.window},         {"seconds", seconds}};
    if (reference) json["reference"] = json_of(comparison_of(*reference, distance));
    print_json("perplexity", json);
    return;
  }
  std::printf("perplexity     %.4f%s\n", perplexity.value, interval_text(perplexity).c_str());
  std::printf("nats a token   %.5f\n", nats.value);
  std::printf("bits a byte    %.5f\n", bits_per_byte);
  std::printf("predictions    %lld, in windows of %lld tokens; %.0f a second\n", static_cast<long long>(predictions),
              static_cast<long long>(task.window), seconds > 0 ? static_cast<double>(predictions) / seconds : 0.0);
  if (reference) print(comparison_of(*reference, distance));
}

}  // namespace bie::cli
