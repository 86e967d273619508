#include "bie/llm/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "bie/formats/error.h"
#include "bie/kernels/exact_math.h"
#include "bie/kernels/log_probabilities.h"

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

/// Subtracts what the tokens of the answer cost that are there.
void penalise_presence(std::vector<Candidate>& all, const std::vector<std::int32_t>& tokens, const SamplerOptions& o) {
  std::map<std::int32_t, std::int64_t> counts;
  for (auto at = static_cast<std::size_t>(o.prompt); at < tokens.size(); ++at) ++counts[tokens[at]];
  for (const auto& [token, count] : counts) {
    float& logit = all[static_cast<std::size_t>(token)].logit;
    logit = logit - static_cast<float>(count) * o.frequency_penalty;
    logit = logit - o.presence_penalty;
  }
}

double share_of(const Candidate& c, float most) { return static_cast<double>(kernels::exact_exp(c.logit - most)); }

/// Candidates, the likeliest first.
class FallingOrder {
 public:
  explicit FallingOrder(std::vector<Candidate> all) : heap_(std::move(all)) {
    std::make_heap(heap_.begin(), heap_.end(), comes_later);
  }
  bool is_empty() const { return heap_.empty(); }
  Candidate next() {
    std::pop_heap(heap_.begin(), heap_.end(), comes_later);
    const Candidate last = heap_.back();
    heap_.pop_back();
    return last;
  }

 private:
  static bool comes_later(const Candidate& a, const Candidate& b) { return b < a; }
  std::vector<Candidate> heap_;
};

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
  for (const auto& [token, bias] : o.biases) {
    float& logit = all[static_cast<std::size_t>(token)].logit;
    logit = logit + bias;
  }
  if (o.repeat_penalty != 1) penalise(all, tokens, o.repeat_penalty);
  if (o.presence_penalty != 0 || o.frequency_penalty != 0) penalise_presence(all, tokens, o);
  const Candidate largest = *std::min_element(all.begin(), all.end());
  if (o.temperature == 0 || std::isinf(largest.logit / o.temperature)) return largest.token;
  for (Candidate& c : all) c.logit = c.logit / o.temperature;
  if (o.top_k > 0 && o.top_k < vocabulary) {
    const auto end = all.begin() + static_cast<std::ptrdiff_t>(o.top_k);
    std::nth_element(all.begin(), end - 1, all.end());
    all.erase(end, all.end());
    std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  }
  const float most = std::min_element(all.begin(), all.end())->logit;
  double sum = 0;
  for (const Candidate& c : all) sum += share_of(c, most);

  // The likeliest tokens alone are put in order: a heap gives one after the other.
  FallingOrder order(std::move(all));
  const bool is_bounded = o.top_p < 1 || o.min_p > 0;
  const double u = uniform_number(o.seed, o.stream, tokens.size());
  std::vector<Candidate> kept{order.next()};
  double left = share_of(kept.front(), most);
  const auto goes_on = [&] { return is_bounded ? o.top_p >= 1 || left < o.top_p * sum : left <= u * sum; };
  while (!order.is_empty() && goes_on()) {
    const Candidate next = order.next();
    if (share_of(next, most) < o.min_p) break;
    kept.push_back(next);
    left += share_of(next, most);
  }
  if (!is_bounded) return kept.back().token;
  double running = 0;
  for (const Candidate& c : kept) {
    running += share_of(c, most);
    if (running > u * left) return c.token;
  }
  return kept.back().token;
}

std::vector<std::pair<std::int32_t, double>> likeliest_tokens(const float* logits, std::int64_t vocabulary,
                                                              std::int64_t count) {
  std::vector<Candidate> all = candidates_of(logits, vocabulary);
  const auto [most, log_sum] = kernels::log_sum_of(logits, vocabulary);
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
