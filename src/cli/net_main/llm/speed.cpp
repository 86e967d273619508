#include "cli/net_main/llm/speed.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>

#include "bie/formats/error.h"
#include "cli/net_main/llm/loaded_language.h"
#include "cli/support/interrupt.h"
#include "cli/support/progress_bar.h"
#include "cli/support/result.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

constexpr std::int64_t part = 512;    // tokens that a pass reads
constexpr std::int64_t written = 32;  // tokens of each stream

/// Tokens a second of a kind of work, each round's.
struct Speed {
  std::int64_t behind, streams;  ///< tokens that are there already, texts; 0 streams: reading
  std::vector<double> rounds;

  double median() const {
    std::vector<double> sorted = rounds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  double least() const { return *std::min_element(rounds.begin(), rounds.end()); }
  double most() const { return *std::max_element(rounds.begin(), rounds.end()); }
};

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Reads and writes tokens that have no meaning, whose speed is that of any others.
class Runner {
 public:
  explicit Runner(LoadedLanguage* language) : session_(language->session), config_(language->model->config()) {}

  double read(std::int64_t length, llm::Sequence* into) {
    const std::vector<std::int32_t> tokens = tokens_from(0, length);
    return seconds_of([&] {
      for (std::int64_t at = 0; at < length; at += part)
        session_.read({{into, tokens.data() + at, std::min(part, length - at), false}});
    });
  }

  /// Each stream has pages of its own.
  double write(std::int64_t streams, const llm::Sequence& behind) {
    std::vector<llm::Sequence> sequences;
    const std::string bytes = bytes_of(behind);
    for (std::int64_t s = 0; s < streams; ++s) {
      sequences.push_back(session_.sequence());
      sequences.back().restore(behind.tokens(), behind.given_back(), reinterpret_cast<const std::byte*>(bytes.data()));
    }
    return seconds_of([&] {
      for (std::int64_t i = 0; i < written && !was_interrupted(); ++i) {
        const std::vector<std::int32_t> tokens = tokens_from(i, streams);
        std::vector<llm::Feed> feeds;
        for (std::int64_t s = 0; s < streams; ++s)
          feeds.push_back({&sequences[static_cast<std::size_t>(s)], tokens.data() + s, 1, false});
        session_.read(feeds);
      }
    });
  }

 private:
  std::vector<std::int32_t> tokens_from(std::int64_t first, std::int64_t count) const {
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = 0; i < count; ++i)
      tokens.push_back(static_cast<std::int32_t>((7919 * (first + i) + 1) % config_.vocabulary));
    return tokens;
  }
  std::string bytes_of(const llm::Sequence& sequence) const {
    std::string bytes;
    for (std::int64_t p = sequence.given_back(); p < sequence.pages(); ++p)
      bytes.append(reinterpret_cast<const char*>(sequence.page(p)), static_cast<std::size_t>(session_.page_bytes()));
    return bytes;
  }

  llm::Session& session_;
  const llm::Config& config_;
};

std::int64_t peak_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{1024} * usage.ru_maxrss;
}

Json json_of(const Speed& speed) {
  Json json = speed.streams == 0
                  ? Json{{"kind", "read"}, {"tokens", speed.behind}}
                  : Json{{"kind", "write"}, {"tokens", written}, {"behind", speed.behind}, {"streams", speed.streams}};
  json["tokens_a_second"] = speed.median();
  json["least"] = speed.least();
  json["most"] = speed.most();
  return json;
}

void print(const Speed& speed) {
  const std::string what = speed.streams == 0
                               ? format("read %lld tokens", static_cast<long long>(speed.behind))
                               : format("write behind %lld tokens, %lld at once", static_cast<long long>(speed.behind),
                                        static_cast<long long>(speed.streams));
  std::printf("%-38s %12.1f %12.1f %12.1f\n", what.c_str(), speed.median(), speed.least(), speed.most());
}

}  // namespace

void tell_speed(const EvaluateArguments& a, const Global& global) {
  LoadedLanguage language = load_language(a.language, global);
  const std::int64_t context = language.model->config().context;
  std::int64_t most_bytes = 0;
  for (const std::int64_t length : a.lengths) {
    if (length + written > context)
      throw formats::Error(formats::joined("--lengths: expected at most ", context - written, ", the context but ",
                                           written, " tokens that are written, got ", length));
    const std::int64_t streams = *std::max_element(a.streams.begin(), a.streams.end());
    most_bytes = std::max(most_bytes, (streams + 1) * llm::cache_bytes(language.session, length + written));
  }
  check_cache_memory(most_bytes, "as many texts as --streams at --lengths");
  const InterruptWatch watch;
  ProgressBar bar("speed");
  std::vector<Speed> speeds;
  Runner runner(&language);
  const auto go_on = [] {
    if (was_interrupted()) throw Interrupted("interrupted; nothing is told");
  };
  for (const std::int64_t length : a.lengths) {
    std::vector<Speed> of_length{{length, 0, {}}};
    for (const std::int64_t streams : a.streams) of_length.push_back({length, streams, {}});
    for (std::int64_t round = 0; round < a.rounds; ++round) {
      if (!global.quiet)
        bar.show(static_cast<double>(round) / static_cast<double>(a.rounds),
                 format("%lld tokens, round %lld", static_cast<long long>(length), static_cast<long long>(round) + 1));
      llm::Sequence text = language.session.sequence();
      for (Speed& speed : of_length) {
        go_on();
        const double seconds = speed.streams == 0 ? runner.read(length, &text) : runner.write(speed.streams, text);
        go_on();
        const std::int64_t tokens = speed.streams == 0 ? length : written * speed.streams;
        speed.rounds.push_back(static_cast<double>(tokens) / std::max(seconds, 1e-9));
      }
    }
    speeds.insert(speeds.end(), of_length.begin(), of_length.end());
  }
  bar.clear();
  const double cache = static_cast<double>(language.session.page_bytes()) / 64;
  if (global.json) {
    Json json = {{"speeds", Json::array()}};
    for (const Speed& speed : speeds) json["speeds"].push_back(json_of(speed));
    json["load_seconds"] = language.load_seconds;
    json["cache_bytes_a_token"] = cache;
    json["peak_bytes"] = peak_bytes();
    print_json("evaluate", json);
    return;
  }
  std::printf("%-38s %12s %12s %12s\n", "tokens a second", "median", "least", "most");
  for (const Speed& speed : speeds) print(speed);
  std::printf("loaded in %.2f s; a token takes %.0f bytes of cache; %.1f MB of memory at most\n", language.load_seconds,
              cache, static_cast<double>(peak_bytes()) / 1e6);
}

}  // namespace bie::cli
