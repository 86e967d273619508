// How tokens are chosen: published numbers of Philox, shares of long series, and what each bound leaves.
#include "bie/llm/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "bie/formats/error.h"
#include "bie/kernels/exact_math.h"
#include "tests/kernels/replayable_rng.h"

namespace bie::llm {
namespace {

/// How often each token is chosen at `count` places of a text.
std::map<std::int32_t, int> chosen(const std::vector<float>& logits, const SamplerOptions& options, int count) {
  std::map<std::int32_t, int> times;
  for (int i = 0; i < count; ++i) {
    const std::vector<std::int32_t> before(static_cast<std::size_t>(i), 0);
    ++times[choose_token(logits.data(), static_cast<std::int64_t>(logits.size()), before, options)];
  }
  return times;
}

TEST(Sampler, PhiloxIsThatOfItsAuthors) {
  // Random123's kat_vectors: philox4x32 10, all zeros and all ones.
  const auto expected = [](std::uint32_t high, std::uint32_t low) {
    return static_cast<double>((std::uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
  };
  const std::uint64_t ones = ~std::uint64_t{0};
  EXPECT_EQ(uniform_number(0, 0, 0), expected(0x6627e8d5, 0xe169c58d));
  EXPECT_EQ(uniform_number(ones, ones, ones), expected(0x408f276d, 0x41c83b0e));
}

TEST(Sampler, TheLargestLogitOfEqualsTheLowestId) {
  const std::vector<float> logits = {1, 5, 5, -3};
  EXPECT_EQ(choose_token(logits.data(), 4, {}, {}), 1);
  EXPECT_EQ(choose_token(logits.data(), 4, {1}, {.repeat_penalty = 2}), 2) << "5 / 2 is less";
  const std::vector<float> negative = {-1, -2, -3};
  EXPECT_EQ(choose_token(negative.data(), 3, {0}, {.repeat_penalty = 3}), 1) << "-1 * 3 is less";
}

TEST(Sampler, BiasesComeFirst) {
  const std::vector<float> logits = {1, 5, 5, -3};
  EXPECT_EQ(choose_token(logits.data(), 4, {}, {.biases = {{3, 8.5f}}}), 3);
  EXPECT_EQ(choose_token(logits.data(), 4, {}, {.biases = {{1, -100.0f}, {2, -100.0f}}}), 0);
  // (-3 + 9) / 2 is less than 5.
  EXPECT_EQ(choose_token(logits.data(), 4, {3}, {.repeat_penalty = 2, .biases = {{3, 9.0f}}}), 1);
}

TEST(Sampler, TokensOfTheAnswerCostForEachTimeAndOnce) {
  const std::vector<float> logits = {4, 5, 1};
  const auto choice = [&](const std::vector<std::int32_t>& tokens, float presence, float frequency,
                          std::int64_t prompt) {
    return choose_token(logits.data(), 3, tokens,
                        {.presence_penalty = presence, .frequency_penalty = frequency, .prompt = prompt});
  };
  EXPECT_EQ(choice({1, 1}, 1.5f, 0, 0), 0);
  EXPECT_EQ(choice({1, 1}, 1.5f, 0, 2), 1) << "those of the prompt cost nothing";
  EXPECT_EQ(choice({1, 1}, 0.9f, 0, 1), 1) << "presence counts once";
  EXPECT_EQ(choice({1}, 0, 0.6f, 0), 1);
  EXPECT_EQ(choice({1, 1}, 0, 0.6f, 0), 0) << "frequency counts twice";
  EXPECT_EQ(choice({1, 1, 0, 0}, 3, 1, 0), 2);
  EXPECT_EQ(choice({2}, -5, 0, 0), 2) << "what is negative rewards";
}

TEST(Sampler, SharesAreThoseOfTheSoftmax) {
  const std::vector<float> logits = {0, 1, 2, 0.5f};
  constexpr int count = 3000;
  double sum = 0;
  for (const float v : logits) sum += std::exp(static_cast<double>(v) / 0.7);
  const auto times = chosen(logits, {.temperature = 0.7f, .seed = 9}, count);
  for (std::int32_t i = 0; i < 4; ++i) {
    const double share = std::exp(static_cast<double>(logits[static_cast<std::size_t>(i)]) / 0.7) / sum;
    const double deviation = std::sqrt(share * (1 - share) / count);
    EXPECT_NEAR(times.at(i) / double{count}, share, 4 * deviation) << i;
  }
}

TEST(Sampler, BoundsLeaveTheLikeliest) {
  const std::vector<float> logits = {0, 3, 2, 1};  // shares 0.032, 0.644, 0.237, 0.087
  const auto tokens_of = [&](const SamplerOptions& options) {
    std::vector<std::int32_t> tokens;
    for (const auto& [token, times] : chosen(logits, options, 400)) tokens.push_back(token);
    return tokens;
  };
  using Tokens = std::vector<std::int32_t>;
  EXPECT_EQ(tokens_of({.temperature = 1}), (Tokens{0, 1, 2, 3}));
  EXPECT_EQ(tokens_of({.temperature = 1, .top_k = 2}), (Tokens{1, 2}));
  EXPECT_EQ(tokens_of({.temperature = 1, .top_k = 9}), (Tokens{0, 1, 2, 3}));
  EXPECT_EQ(tokens_of({.temperature = 1, .top_p = 0.6}), (Tokens{1}));
  EXPECT_EQ(tokens_of({.temperature = 1, .top_p = 0.7}), (Tokens{1, 2}));
  EXPECT_EQ(tokens_of({.temperature = 1, .top_p = 0}), (Tokens{1}));
  EXPECT_EQ(tokens_of({.temperature = 1, .min_p = 0.3}), (Tokens{1, 2}));
  EXPECT_EQ(tokens_of({.temperature = 1, .min_p = 1}), (Tokens{1}));
}

/// The choice as docs/spec/language-models.md#choice says it, every token in order.
std::int32_t choice_of_law(const std::vector<float>& logits, const SamplerOptions& o, std::size_t position) {
  std::vector<std::int32_t> order;
  for (std::size_t i = 0; i < logits.size(); ++i) order.push_back(static_cast<std::int32_t>(i));
  const auto scaled = [&](std::int32_t i) { return logits[static_cast<std::size_t>(i)] / o.temperature; };
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return scaled(a) > scaled(b); });
  if (o.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(o.top_k)));
  const auto share = [&](std::int32_t i) {
    return static_cast<double>(kernels::exact_exp(scaled(i) - scaled(order.front())));
  };
  std::vector<std::int32_t> by_id = order;
  std::sort(by_id.begin(), by_id.end());
  double sum = 0, left = share(order.front());
  for (const std::int32_t i : by_id) sum += share(i);
  std::size_t count = 1;
  while (count < order.size() && (o.top_p >= 1 || left < o.top_p * sum) && share(order[count]) >= o.min_p)
    left += share(order[count++]);
  const double wanted = uniform_number(o.seed, o.stream, position) * (o.top_p < 1 || o.min_p > 0 ? left : sum);
  double running = 0;
  for (std::size_t i = 0; i < count; ++i)
    if ((running += share(order[i])) > wanted) return order[i];
  return order[count - 1];
}

TEST(Sampler, ManyTokensAsTheLawSays) {
  kernels::test::ReplayableRng rng;
  for (int round = 0; round < 60; ++round) {
    std::vector<float> logits;
    for (int i = 0; i < 700; ++i) logits.push_back(static_cast<float>(rng.between(-40, 40)) / 8);  // many equals
    SamplerOptions o{.temperature = static_cast<float>(rng.between(1, 30)) / 10, .seed = 3};
    if (rng.coin()) o.top_k = rng.one_of({1, 5, 100, 699, 700, 2000});
    if (rng.coin()) o.top_p = static_cast<double>(rng.between(0, 100)) / 100;
    if (rng.coin()) o.min_p = static_cast<double>(rng.between(0, 100)) / 200;
    for (int position = 0; position < 5; ++position) {
      const std::vector<std::int32_t> before(static_cast<std::size_t>(position), 0);
      ASSERT_EQ(choose_token(logits.data(), 700, before, o), choice_of_law(logits, o, before.size()));
    }
  }
}

TEST(Sampler, PlaceSeedAndStreamDecide) {
  EXPECT_NE(uniform_number(1, 0, 5), uniform_number(2, 0, 5));
  EXPECT_NE(uniform_number(1, 0, 5), uniform_number(1, 1, 5));
  EXPECT_NE(uniform_number(1, 0, 5), uniform_number(1, 0, 6));
}

TEST(Sampler, LogarithmsOfProbabilities) {
  const std::vector<float> logits = {2, 4, 4, -2000};
  const auto best = likeliest_tokens(logits.data(), 4, 9);
  ASSERT_EQ(best.size(), 4u);
  const double sum = std::log(std::exp(-2.0) + 2);
  EXPECT_EQ(best[0].first, 1);
  EXPECT_EQ(best[1].first, 2);
  EXPECT_NEAR(best[0].second, -sum, 1e-15);
  EXPECT_NEAR(best[2].second, -2 - sum, 1e-15);
  EXPECT_NEAR(best[3].second, -2004 - sum, 1e-12);
}

TEST(Sampler, NanIsNoLogit) {
  const std::vector<float> logits = {1, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THROW(choose_token(logits.data(), 2, {}, {}), formats::Error);
  EXPECT_THROW(likeliest_tokens(logits.data(), 2, 1), formats::Error);
  const std::vector<float> infinite = {1, -std::numeric_limits<float>::infinity()};
  EXPECT_EQ(choose_token(infinite.data(), 2, {}, {.temperature = 1}), 0);
}

TEST(Sampler, WhereTheQuotientIsInfiniteTheLargestLogitIsTaken) {
  const std::vector<float> logits = {20, 30, 30, 10};
  EXPECT_EQ(choose_token(logits.data(), 4, {}, {.temperature = 1e-38f}), 1);
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> infinite = {1, infinity, infinity};
  EXPECT_EQ(choose_token(infinite.data(), 3, {}, {.temperature = 1}), 1);
  const std::vector<float> nothing = {-infinity, -infinity};
  EXPECT_EQ(choose_token(nothing.data(), 2, {}, {.temperature = 1}), 0);
}

}  // namespace
}  // namespace bie::llm
