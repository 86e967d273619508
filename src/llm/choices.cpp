#include "bie/llm/choices.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "bie/formats/error.h"
#include "bie/kernels/exact_math.h"
#include "bie/kernels/log_probabilities.h"
#include "llm/read_rows.h"

namespace bie::llm {
namespace {

using Tokens = std::vector<std::int32_t>;

/// A row of logits in a pass.
struct Place {
  std::size_t feed;
  std::int64_t token;  ///< of the feed
};

/// Reads feeds, each of its own sequence, as many rows at a time as a pass takes, and shows the logits of each pass.
template <class See>
void read_in_passes(Session& session, const std::vector<Feed>& feeds, const See& see) {
  const std::int64_t vocabulary = session.model().config().vocabulary;
  const std::int64_t most = read_rows(vocabulary);
  std::int64_t done = 0;  // of the feed that is begun
  for (std::size_t i = 0; i < feeds.size();) {
    std::vector<Feed> pass;
    std::vector<Place> places;
    for (std::int64_t left = most; left > 0 && i < feeds.size();) {
      Feed part = feeds[i];
      part.tokens += done;
      part.count = std::min(part.count - done, left);
      for (std::int64_t t = part.all_logits ? 0 : part.count - 1; t < part.count; ++t) places.push_back({i, done + t});
      pass.push_back(part);
      left -= part.count;
      done += part.count;
      if (done < feeds[i].count) continue;
      ++i;
      done = 0;
    }
    const std::vector<float> logits = session.read(pass);
    std::vector<kernels::LogSum> sums(places.size());
    kernels::log_sums(logits.data(), std::ssize(places), vocabulary, sums.data(), session.parallel());
    for (std::size_t r = 0; r < places.size(); ++r)
      see(places[r], logits.data() + static_cast<std::int64_t>(r) * vocabulary, sums[r]);
  }
}

std::int64_t rows_of(const Question& question) {
  auto rows = std::ssize(question.context);
  for (const Tokens& choice : question.choices) rows += std::ssize(choice) - 1;
  return rows;
}

/// Scores of questions [begin, end), whose contexts and whose choices are read together.
void score(Session& session, const std::vector<Question>& questions, std::size_t begin, std::size_t end,
           std::vector<std::vector<double>>* scores) {
  const auto checked = [](const kernels::LogSum& sum, std::size_t question) {
    if (std::isnan(sum.log_sum))
      throw formats::Error(formats::joined("a logit of the model is NaN or infinite in question ", question + 1));
    return sum;
  };
  std::vector<Sequence> contexts(end - begin, session.sequence());
  std::vector<Feed> feeds;
  for (std::size_t q = begin; q < end; ++q)
    feeds.push_back({&contexts[q - begin], questions[q].context.data(), std::ssize(questions[q].context), false});
  read_in_passes(session, feeds, [&](const Place& place, const float* logits, const kernels::LogSum& sum) {
    const Question& question = questions[begin + place.feed];
    if (place.token + 1 < std::ssize(question.context)) return;
    std::vector<double>& of = (*scores)[begin + place.feed];
    for (const Tokens& choice : question.choices)
      of.push_back(checked(sum, begin + place.feed).of(logits[choice.front()]));
  });

  struct Answer {
    std::size_t question, choice;
  };
  std::vector<Sequence> forks;
  std::vector<Answer> answers;
  feeds.clear();
  for (std::size_t q = begin; q < end; ++q)
    for (std::size_t c = 0; c < questions[q].choices.size(); ++c)
      if (questions[q].choices[c].size() > 1) {
        forks.push_back(contexts[q - begin]);
        answers.push_back({q, c});
      }
  for (std::size_t i = 0; i < forks.size(); ++i) {
    const Tokens& choice = questions[answers[i].question].choices[answers[i].choice];
    feeds.push_back({&forks[i], choice.data(), std::ssize(choice) - 1, true});
  }
  read_in_passes(session, feeds, [&](const Place& place, const float* logits, const kernels::LogSum& sum) {
    const auto [q, c] = answers[place.feed];
    const std::int32_t next = questions[q].choices[c][static_cast<std::size_t>(place.token) + 1];
    (*scores)[q][c] += checked(sum, q).of(logits[next]);
  });
}

}  // namespace

Question question_of(const text::Tokenizer& tokenizer, const std::string& context,
                     const std::vector<std::string>& choices) {
  const std::size_t length = context.find_last_not_of(" \t\n\v\f\r") + 1;  // 0 where nothing else is there
  const std::string front = context.substr(0, length), behind = context.substr(length);
  Question question{tokenizer.opened(front, /*special=*/false), {}};
  const bool is_empty = front.empty();
  if (is_empty && question.context.empty()) {
    const auto first = tokenizer.bos() ? tokenizer.bos() : tokenizer.eos();
    if (!first) throw formats::Error("expected a context, got an empty one, and the model has neither BOS nor EOS");
    question.context = {*first};
  }
  for (const std::string& choice : choices) {
    const Tokens both = is_empty ? tokenizer.encode(behind + choice, /*special=*/false)
                                 : tokenizer.opened(front + behind + choice, /*special=*/false);
    const std::size_t skipped = is_empty ? 0 : question.context.size();
    if (both.size() <= skipped)
      throw formats::Error(formats::joined("expected a choice of one token at least behind the context, got ",
                                           formats::in_quotes(choice)));
    question.choices.emplace_back(both.begin() + static_cast<std::ptrdiff_t>(skipped), both.end());
  }
  return question;
}

std::vector<std::vector<double>> choice_scores(Session& session, const std::vector<Question>& questions,
                                               const std::function<bool(std::int64_t)>& go_on) {
  const std::int64_t context = session.model().config().context;
  for (std::size_t q = 0; q < questions.size(); ++q) {
    std::int64_t longest = 0;
    for (const Tokens& choice : questions[q].choices) longest = std::max<std::int64_t>(longest, std::ssize(choice));
    const std::int64_t tokens = std::ssize(questions[q].context) + longest - 1;
    if (tokens > context)
      throw formats::Error(formats::joined("question ", q + 1, ": expected at most ", context,
                                           " tokens, the context of the model, got ", tokens));
  }
  std::vector<std::vector<double>> scores(questions.size());
  std::size_t at = 0;
  while (at < questions.size() && go_on(static_cast<std::int64_t>(at))) {
    std::size_t end = at + 1;
    for (std::int64_t rows = rows_of(questions[at]); end < questions.size(); ++end)
      if ((rows += rows_of(questions[end])) > most_read_rows) break;
    score(session, questions, at, end, &scores);
    at = end;
  }
  scores.resize(at);
  return scores;
}

Share share_of(std::int64_t part, std::int64_t all) {
  const auto n = static_cast<double>(all);
  const double value = static_cast<double>(part) / n, z = 1.96;
  const double middle = (value + z * z / (2 * n)) / (1 + z * z / n);
  const double away = z / (1 + z * z / n) * std::sqrt(value * (1 - value) / n + z * z / (4 * n * n));
  return {value, {std::max(0.0, middle - away), std::min(1.0, middle + away)}};
}

PairedAnswers paired_answers(const std::vector<bool>& first, const std::vector<bool>& second) {
  PairedAnswers found;
  for (std::size_t i = 0; i < first.size(); ++i) {
    found.only_first += first[i] && !second[i] ? 1 : 0;
    found.only_second += second[i] && !first[i] ? 1 : 0;
  }
  const auto n = static_cast<double>(first.size());
  const std::int64_t differ = found.only_first + found.only_second;
  found.difference = static_cast<double>(found.only_first - found.only_second) / n;
  const double variance = (static_cast<double>(differ) / n - found.difference * found.difference) / n;
  const double away = 1.96 * std::sqrt(std::max(0.0, variance));
  found.interval = {found.difference - away, found.difference + away};
  // Twice the chance that of so many fair coins at most the rarer side's number falls on it.
  const std::int64_t rarer = std::min(found.only_first, found.only_second);
  double chance = 0, log = -static_cast<double>(differ) * kernels::exact_log(2.0);
  for (std::int64_t k = 0; k <= rarer; ++k) {
    chance += log < -700 ? 0 : kernels::exact_exp(log);
    log += kernels::exact_log(static_cast<double>(differ - k) / static_cast<double>(k + 1));
  }
  found.p_value = std::min(1.0, 2 * chance);
  return found;
}

}  // namespace bie::llm
