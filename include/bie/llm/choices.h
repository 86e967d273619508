// How likely a model finds each of several ends of a text, and what two models' answers say of them.
// Source: docs/spec/language-models.md#choices.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bie/llm/session.h"
#include "bie/text/tokenizer.h"

namespace bie::llm {

/// A question as texts.
struct AskedChoices {
  std::string context;
  std::vector<std::string> choices;  ///< two at least, none of them empty
  std::size_t answer;                ///< which one is right
};

/// {"context": TEXT, "choices": [TEXT, ...], "answer": NUMBER} of JSON, other keys aside.
/// @throws formats::Error, one sentence.
AskedChoices asked_choices(const std::string& json);

struct Question {
  std::vector<std::int32_t> context;               ///< one token at least
  std::vector<std::vector<std::int32_t>> choices;  ///< of one token each at least
};

/// The tokens of a question: a choice is what context and choice have together behind the tokens of the context.
/// @throws formats::Error, one sentence, for a choice without tokens and an empty context where the model has neither
/// BOS nor EOS.
Question question_of(const text::Tokenizer& tokenizer, const std::string& context,
                     const std::vector<std::string>& choices);

/// ln p of each choice behind its context: the sum, in double, over its tokens.
/// @param go_on  asked with the number of questions answered so far; false ends the list there.
/// @throws formats::Error naming the question, counted from 1: it is longer than the model's context, or a logit is
/// NaN.
std::vector<std::vector<double>> choice_scores(Session& session, const std::vector<Question>& questions,
                                               const std::function<bool(std::int64_t)>& go_on);

/// A part of all and its 95 % interval by Wilson's formula.
struct Share {
  double value;
  std::pair<double, double> interval;
};
Share share_of(std::int64_t part, std::int64_t all);

/// Two models' answers to the same questions: whether each is right.
struct PairedAnswers {
  std::int64_t only_first = 0, only_second = 0;  ///< questions that one of both answers rightly
  double difference = 0;                         ///< of the shares, the first's less the second's
  std::pair<double, double> interval;            ///< 95 %, of the difference
  double p_value = 1;  ///< McNemar's exact test, both sides: of a difference like this if both models were equal
};
PairedAnswers paired_answers(const std::vector<bool>& first, const std::vector<bool>& second);

}  // namespace bie::llm
