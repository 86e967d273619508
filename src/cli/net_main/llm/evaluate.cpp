// The work of bie evaluate --choices.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "bie/formats/error.h"
#include "bie/llm/choices.h"
#include "cli/llm/language.h"
#include "cli/net_main/llm/loaded_language.h"
#include "cli/net_main/llm/speed.h"
#include "cli/nets/net_files.h"
#include "cli/support/command_files.h"
#include "cli/support/interrupt.h"
#include "cli/support/progress_bar.h"
#include "cli/support/result.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

/// A line of the file.
struct Asked {
  llm::AskedChoices of;
  std::size_t line;
};

[[noreturn]] void fail_line(std::size_t line, const std::string& sentence) {
  throw formats::Error(formats::joined("--choices: line ", line, ": ", sentence));
}

std::vector<Asked> asked_of_file(const std::string& path) {
  std::vector<Asked> all;
  std::size_t number = 0;
  for (const std::string& line : lines_of_file(path, "a question")) {
    ++number;
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    try {
      all.push_back({llm::asked_choices(line), number});
    } catch (const formats::Error& error) {
      fail_line(number, error.what());
    }
  }
  if (all.empty()) throw formats::Error("--choices: expected a question in each line, got empty lines alone");
  return all;
}

/// Whether each question is answered rightly.
struct Answers {
  std::vector<bool> by_sum, by_bytes;
};

/// Bytes of a choice behind the white space that parts it from its context.
double length_of(const std::string& choice) {
  const std::size_t begin = choice.find_first_not_of(" \t\n\v\f\r");
  return static_cast<double>(choice.size() - (begin == std::string::npos ? 0 : begin));
}

std::size_t best_of(const std::vector<double>& scores) {
  return static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

Answers answers_of(const std::string& model, const EvaluateArguments& a, const std::vector<Asked>& all,
                   const Global& global) {
  LanguageOptions options = a.language;
  options.model = model;
  LoadedLanguage language = load_language(options, global);
  std::vector<llm::Question> questions;
  std::int64_t longest = 0;
  for (const Asked& asked : all) {
    try {
      questions.push_back(llm::question_of(language.tokenizer, asked.of.context, asked.of.choices));
    } catch (const formats::Error& error) {
      fail_line(asked.line, error.what());
    }
    std::int64_t tokens = std::ssize(questions.back().context);
    for (const auto& choice : questions.back().choices) tokens += std::ssize(choice);
    longest = std::max(longest, tokens);
  }
  check_cache_memory(llm::cache_bytes(language.session, longest), "the longest question");
  ProgressBar bar("evaluate");
  const auto count = std::ssize(questions);
  const auto scores = llm::choice_scores(language.session, questions, [&](std::int64_t done) {
    if (!global.quiet)
      bar.show(static_cast<double>(done) / static_cast<double>(count),
               format("question %lld of %lld", static_cast<long long>(done), static_cast<long long>(count)));
    return !was_interrupted();
  });
  bar.clear();
  if (std::ssize(scores) < count) throw Interrupted("interrupted; an accuracy is of all questions, so there is none");
  Answers answers;
  for (std::size_t q = 0; q < all.size(); ++q) {
    std::vector<double> by_byte = scores[q];
    for (std::size_t c = 0; c < by_byte.size(); ++c) by_byte[c] /= length_of(all[q].of.choices[c]);
    answers.by_sum.push_back(best_of(scores[q]) == all[q].of.answer);
    answers.by_bytes.push_back(best_of(by_byte) == all[q].of.answer);
  }
  return answers;
}

llm::Share share_of(const std::vector<bool>& right) {
  return llm::share_of(std::count(right.begin(), right.end(), true), std::ssize(right));
}

void put_shares(const Answers& answers, Json* to) {
  const auto put = [to](const std::string& key, const llm::Share& share) {
    (*to)[key] = share.value;
    (*to)[key + "_interval"] = Json::array({share.interval.first, share.interval.second});
  };
  put("accuracy", share_of(answers.by_sum));
  put("accuracy_bytes", share_of(answers.by_bytes));
}

void print_shares(const Answers& answers) {
  const auto print = [](const char* label, const llm::Share& share) {
    std::printf("%-15s%.2f %%   (%.2f to %.2f the 95 %% interval)\n", label, 100 * share.value,
                100 * share.interval.first, 100 * share.interval.second);
  };
  print("accuracy", share_of(answers.by_sum));
  print("by bytes", share_of(answers.by_bytes));
}

void evaluate_choices(const EvaluateArguments& a, const Global& global) {
  const std::vector<Asked> all = asked_of_file(a.choices);
  const InterruptWatch watch;
  const auto begin = std::chrono::steady_clock::now();
  const Answers answers = answers_of(a.language.model, a, all, global);
  std::optional<Answers> others;
  if (!a.against.empty()) others = answers_of(a.against, a, all, global);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::optional<llm::PairedAnswers> paired;
  if (others) paired = llm::paired_answers(answers.by_sum, others->by_sum);
  if (global.json) {
    Json json;
    put_shares(answers, &json);
    json["count"] = all.size();
    if (others) {
      Json against;
      put_shares(*others, &against);
      against["difference"] = paired->difference;
      against["difference_interval"] = Json::array({paired->interval.first, paired->interval.second});
      against["only_this_is_right"] = paired->only_first;
      against["only_the_other_is_right"] = paired->only_second;
      against["p_value"] = paired->p_value;
      json["against"] = std::move(against);
    }
    json["seconds"] = seconds;
    print_json("evaluate", json);
    return;
  }
  print_shares(answers);
  std::printf("questions      %zu, in %.1f s\n", all.size(), seconds);
  if (!others) return;
  std::printf("\n%s:\n", a.against.c_str());
  print_shares(*others);
  std::printf(
      "\ndifference     %+.2f %%   (%+.2f to %+.2f the 95 %% interval); %lld questions this model alone answers "
      "rightly, %lld the other alone; p = %.3g\n",
      100 * paired->difference, 100 * paired->interval.first, 100 * paired->interval.second,
      static_cast<long long>(paired->only_first), static_cast<long long>(paired->only_second), paired->p_value);
}

/// bie eval has nets.
void refuse_net(const std::string& path) {
  if (is_net(path) || path.ends_with(".safetensors"))
    throw formats::Error(path + ": expected a language model, got a net, which bie eval takes");
}

}  // namespace

void evaluate(const EvaluateArguments& a, const Global& global) {
  refuse_net(a.language.model);
  if (!a.against.empty()) refuse_net(a.against);
  if (a.speed)
    tell_speed(a, global);
  else
    evaluate_choices(a, global);
}

}  // namespace bie::cli
