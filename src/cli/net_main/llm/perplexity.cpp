// The work of bie perplexity.
#include "bie/llm/perplexity.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <numbers>

#include "bie/formats/error.h"
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

}  // namespace

void tell_perplexity(const PerplexityArguments& a, const Global& global) {
  CommandFiles files;
  files.reads(a.language.model, "the model's file");
  if (a.data != "-") files.reads(a.data, "the text's file");
  const std::string text = text_of_file(a.data);
  LoadedLanguage language = load_language(a.language, global);
  const std::int64_t window =
      a.language.context > 0 ? a.language.context : std::min(usual_window, language.model->config().context);
  const std::vector<std::int32_t> tokens = open_tokens_of(language.tokenizer, text, /*special=*/false);
  const auto count = static_cast<std::int64_t>(tokens.size());
  const std::int64_t least = std::max<std::int64_t>(window, 2);
  if (count < least)
    throw formats::Error(formats::joined("--data: expected a text of ", least, " tokens at least, a window, got ",
                                         count, "; --context N makes windows shorter"));
  check_cache_memory(llm::cache_bytes(language.session, window), "a window, whose tokens --context says");

  const InterruptWatch watch;
  ProgressBar bar("perplexity");
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<double> losses = llm::losses_of(language.session, tokens, window, [&](std::int64_t done) {
    if (!global.quiet)
      bar.show(static_cast<double>(done) / static_cast<double>(count - 1),
               format("token %lld of %lld", static_cast<long long>(done), static_cast<long long>(count)));
    return !was_interrupted();
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  bar.clear();
  const auto predictions = static_cast<std::int64_t>(losses.size());
  if (predictions < count - 1) throw Interrupted("interrupted; a perplexity is of the whole text, so there is none");

  const llm::Perplexity found = llm::perplexity_of(losses);
  const double bits_per_byte =
      found.nats * static_cast<double>(predictions) / std::numbers::ln2 / static_cast<double>(text.size());
  if (global.json) {
    Json json = {
        {"perplexity", found.value},      {"interval", nullptr},  {"tokens", predictions}, {"nats", found.nats},
        {"bits_per_byte", bits_per_byte}, {"bytes", text.size()}, {"context", window},     {"seconds", seconds}};
    if (found.interval) json["interval"] = Json::array({found.interval->first, found.interval->second});
    print_json("perplexity", json);
    return;
  }
  const std::string interval =
      found.interval ? format("   (%.4g to %.4g the 95 %% interval)", found.interval->first, found.interval->second)
                     : "";
  std::printf("perplexity     %.4f%s\n", found.value, interval.c_str());
  std::printf("nats a token   %.5f\n", found.nats);
  std::printf("bits a byte    %.5f\n", bits_per_byte);
  std::printf("predictions    %lld, in windows of %lld tokens; %.0f a second\n", static_cast<long long>(predictions),
              static_cast<long long>(window), seconds > 0 ? static_cast<double>(predictions) / seconds : 0.0);
}

}  // namespace bie::cli
