// Schedulers of a small random model, and what their listeners hear.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bie/llm/page_folder.h"
#include "bie/llm/scheduler.h"
#include "tests/kernels/replayable_rng.h"
#include "tests/llm/small_model.h"
#include "tests/support/scratch.h"

namespace bie::llm::test {

/// Forty tokens of a letter and a digit; the last one ends an answer.
inline text::Tokenizer forty_tokens() {
  text::Vocabulary v;
  v.splitter = "gpt-2";
  for (int i = 0; i < 40; ++i) {
    v.tokens.push_back(std::string(1, static_cast<char>('a' + i % 26)) + static_cast<char>('0' + i / 26));
    v.kinds.push_back(text::Vocabulary::Kind::normal);
  }
  v.kinds.back() = text::Vocabulary::Kind::control;
  v.eos = 39;
  return text::Tokenizer(std::move(v));
}

inline constexpr std::pair<std::int32_t, float> never_ends{39, -100.0f};

struct Served {
  std::string text, error;
  std::vector<std::int32_t> tokens;
  std::vector<double> logprobs;
  std::vector<std::vector<std::pair<std::int32_t, double>>> likeliest;
  std::vector<TokenChance> of_prompt;
  std::optional<Answer::Finish> finish;
  std::vector<float> vector;
  std::int64_t cached = 0;
};

inline Listener into(Served& served) {
  return [&served](const News& news) {
    ASSERT_FALSE(served.finish) << "a listener hears nothing behind the end";
    served.text += news.text;
    if (news.token) served.tokens.push_back(*news.token);
    if (news.chance) {
      served.logprobs.push_back(news.chance->logprob);
      served.likeliest.push_back(news.chance->likeliest);
    }
    if (!news.of_prompt.empty()) served.of_prompt = news.of_prompt;
    served.vector = news.vector;
    served.finish = news.finish;
    served.error = news.error;
    served.cached = news.cached;
  };
}

class SchedulerTest : public testing::Test {
 protected:
  SchedulerTest() : tokenizer_(forty_tokens()) {
    const bie::test::Scratch scratch;
    const std::string path = scratch.path("model.gguf");
    save_small_model(path, 2);
    model_ = std::make_shared<const Model>(path, Arithmetic::int8, kernels::serial());
  }

  std::unique_ptr<Scheduler> scheduler(std::int64_t pages, std::int64_t rows = 256, std::int64_t queue = 256,
                                       int threads = 1, std::shared_ptr<PageFolder> folder = {}) const {
    Session session(model_, threads, CacheKind::q8);
    SchedulerOptions options;
    options.rows = rows;
    options.queue = queue;
    options.cache_bytes = pages * session.page_bytes();
    options.folder = std::move(folder);
    return std::make_unique<Scheduler>(std::move(session), tokenizer_, options);
  }

  Answer alone(const Request& request) const {
    Session session(model_, 1, CacheKind::q8);
    GenerateOptions options;
    options.tokens = request.tokens;
    options.stops = request.stops;
    options.sampler = request.sampler;
    options.sampler.prompt = static_cast<std::int64_t>(request.prompt.size());
    options.logprobs = request.likeliest.value_or(0);
    Times times;
    return generate(
               session, tokenizer_, {request.prompt}, options, [](std::size_t, const std::string&) {},
               [] { return true; }, &times)
        .front();
  }

  static std::vector<std::int32_t> tokens(kernels::test::ReplayableRng& rng, std::int64_t count) {
    std::vector<std::int32_t> some;
    while (static_cast<std::int64_t>(some.size()) < count)
      some.push_back(static_cast<std::int32_t>(rng.between(0, 38)));
    return some;
  }

  std::shared_ptr<const Model> model_;
  text::Tokenizer tokenizer_;
};

inline void run(Scheduler& scheduler) {
  int passes = 0;
  while (scheduler.pass()) ASSERT_LT(++passes, 20000) << "the scheduler comes to no end";
}

}  // namespace bie::llm::test
