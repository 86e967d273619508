#include "bie/llm/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "bie/formats/error.h"
#include "bie/kernels/exact_math.h"

namespace bie::llm {
namespace {

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xd2511f53} * counter[0], b = std::uint64_t{0xcd9e8d57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9e3779b9, key[1] + 0xbb67ae85};
  }
  return counter;
}

struct Candidate {
  std::int32_t token;
  float logit;
  /// The larger first, of equals the lower id.
  bool operator<(const Candidate& o) const { return logit != o.logit ? logit > o.logit : token < o.token; }
};

std::vector<Candidate> candidates_of(const float* logits, std::int64_t vocabulary) {
  std::vector<Candidate> all(static_cast<std::size_t>(vocabulary));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = {static_cast<std::int32_t>(i), logits[i]};
    if (std::isnan(logits[i])) throw formats::Error(formats::joined("the model's logit of token ", i, " is NaN"));
  }
  return all;
}

void penalise(std::vector<Candidate>& all, const std::vector<std::int32_t>& tokens, float penalty) {
  std::vector<bool> met(all.size(), false);
  for (const std::int32_t token : tokens) {
    const auto at = static_cast<std::size_t>(token);
    if (met[at]) continue;
    met[at] = true;
    float& logit = all[at].logit;
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

/// e^x in double for x <= 0; far below float32's least it is 0.
double exp_of_negative(double x) { return x < -700 ? 0 : kernels::exact_exp(x); }

}  // namespace

double uniform_number(std::uint64_t seed, std::uint64_t stream, std::uint64_t position) {
  const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const auto high = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); };
  const auto words = philox({low(position), high(position), low(stream), high(stream)}, {low(seed), high(seed)});
  return static_cast<double>((std::uint64_t{words[0]} << 32 | words[1]) >> 11) * 0x1p-53;
}

std::int32_t choose_token(const float* logits, std::int64_t vocabulary, const std::vector<std::int32_t>& tokens,
                          const SamplerOptions& o) {
  std::vector<Candidate> all = candidates_of(logits, vocabulary);
  if (o.repeat_penalty != 1) penalise(all, tokens, o.repeat_penalty);
  const Candidate largest = *std::min_element(all.begin(), all.end());
  if (o.temperature == 0 || std::isinf(largest.logit / o.temperature)) return largest.token;
  for (Candidate& c : all) c.logit = c.logit / o.temperature;
  const std::size_t kept = o.top_k > 0 ? std::min(all.size(), static_cast<std::size_t>(o.top_k)) : all.size();
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept), all.end());
  all.resize(kept);
  std::vector<double> shares;
  double sum = 0;
  for (const Candidate& c : all) {
    shares.push_back(static_cast<double>(kernels::exact_exp(c.logit - all.front().logit)));
    sum += shares.back();
  }
  std::size_t count = shares.size();
  if (o.top_p < 1) {
    double running = shares.front();
    for (count = 1; count < shares.size() && running < o.top_p * sum;) running += shares[count++];
  }
  while (count > 1 && shares[count - 1] < o.min_p * shares.front()) --count;
  double left = 0;
  for (std::size_t i = 0; i < count; ++i) left += shares[i];
  const double wanted = uniform_number(o.seed, o.stream, tokens.size()) * left;
  double running = 0;
  for (std::size_t i = 0; i < count; ++i) {
    running += shares[i];
    if (running > wanted) return all[i].token;
  }
  return all[count - 1].token;
}

std::vector<std::pair<std::int32_t, double>> likeliest_tokens(const float* logits, std::int64_t vocabulary,
                                                              std::int64_t count) {
  std::vector<Candidate> all = candidates_of(logits, vocabulary);
  const auto most = static_cast<double>(std::min_element(all.begin(), all.end())->logit);
  double sum = 0;
  for (const Candidate& c : all) sum += exp_of_negative(static_cast<double>(c.logit) - most);
  const double log_sum = kernels::exact_log(sum);
  const auto kept = static_cast<std::ptrdiff_t>(std::min(count, vocabulary));
  std::partial_sort(all.begin(), all.begin() + kept, all.end());
  std::vector<std::pair<std::int32_t, double>> best;
  for (std::ptrdiff_t i = 0; i < kept; ++i) {
    const Candidate& c = all[static_cast<std::size_t>(i)];
    best.emplace_back(c.token, static_cast<double>(c.logit) - most - log_sum);
  }
  return best;
}

}  // namespace bie::llm
