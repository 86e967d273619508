#include "bie/llm/perplexity.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "bie/formats/error.h"
#include "bie/kernels/exact_math.h"
#include "bie/kernels/log_probabilities.h"
#include "llm/read_rows.h"

namespace bie::llm {
namespace {

/// e^x in double; a loss may be infinite.
double exp_of(double x) {
  if (x > 700) return INFINITY;
  return x < -700 ? 0 : kernels::exact_exp(x);
}

}  // namespace

std::vector<double> losses_of(Session& session, const std::vector<std::int32_t>& tokens, std::int64_t window,
                              const std::function<bool(std::int64_t)>& go_on, const SeePredictions& see) {
  const Config& config = session.model().config();
  if (window < 1 || window > config.context)
    throw formats::Error(formats::joined("expected windows of 1 to ", config.context,
                                         " tokens, the context of the model, got ", window));
  const std::int64_t vocabulary = config.vocabulary;
  const std::int64_t most = read_rows(vocabulary);
  const auto predictions = static_cast<std::int64_t>(tokens.size()) - 1;
  std::vector<double> losses;
  std::unique_ptr<Sequence> open;  // what the last pass has left unfinished
  for (std::int64_t at = 0; at < predictions && go_on(at);) {
    // Windows, and parts of windows, as many as a pass takes.
    const std::int64_t end = std::min(predictions, at + most);
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::vector<Feed> feeds;
    for (std::int64_t begin = at; begin < end;) {
      const std::int64_t stop = std::min(end, begin - begin % window + window);
      if (begin % window == 0) open = std::make_unique<Sequence>(session.sequence());
      sequences.push_back(std::move(open));
      feeds.push_back({sequences.back().get(), tokens.data() + begin, stop - begin, true});
      begin = stop;
    }
    const std::vector<float> logits = session.read(feeds);
    std::vector<kernels::LogSum> sums(static_cast<std::size_t>(end - at));
    kernels::log_sums(logits.data(), end - at, vocabulary, sums.data(), session.parallel());
    for (std::int64_t i = at; i < end; ++i) {
      const kernels::LogSum& sum = sums[static_cast<std::size_t>(i - at)];
      if (std::isnan(sum.log_sum))
        throw formats::Error(
            formats::joined("a logit of the model is NaN or infinite behind token ", i, " of the text"));
      const auto token = static_cast<std::int64_t>(tokens[static_cast<std::size_t>(i) + 1]);
      losses.push_back(-sum.of(logits[static_cast<std::size_t>((i - at) * vocabulary + token)]));
    }
    if (see) see(at, end - at, logits.data(), losses.data() + at);
    at = end;
    open = std::move(sequences.back());
  }
  return losses;
}

Mean mean_of(const std::vector<double>& values) {
  const auto mean = [](auto begin, auto end) {
    return std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin);
  };
  Mean found{mean(values.begin(), values.end()), std::nullopt};
  const auto blocks = static_cast<std::int64_t>(values.size()) / perplexity_block;
  if (blocks < 2) return found;
  // The variance of a mean of blocks that have unequal sizes: each counts by its size.
  double squares = 0;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const auto begin = values.begin() + b * perplexity_block;
    const auto end = b + 1 == blocks ? values.end() : begin + perplexity_block;
    const double part = static_cast<double>(end - begin) / static_cast<double>(values.size());
    const double away = part * (mean(begin, end) - found.value);
    squares += away * away;
  }
  const auto count = static_cast<double>(blocks);
  const double error = std::sqrt(squares * (count / (count - 1)));
  found.interval = {found.value - 1.96 * error, found.value + 1.96 * error};
  return found;
}

Mean exp_of(const Mean& mean) {
  Mean found{exp_of(mean.value), std::nullopt};
  if (mean.interval) found.interval = {exp_of(mean.interval->first), exp_of(mean.interval->second)};
  return found;
}

}  // namespace bie::llm
