// The form that OpenAI's chats and completions have in common.
#pragma once

#include <string>

#include "cli/net_main/serve/form.h"

namespace bie::cli {

class OpenaiForm : public Form {
 public:
  Json whole() override;
  std::string end_of(std::size_t choice) override;
  std::string end() override;
  std::string failure(const ApiError& error) override { return event_of(openai_error(error)); }

 protected:
  /// @param whole, piece  names of an answer and of an event of one.
  OpenaiForm(const Answers& answers, const text::Tokenizer& tokenizer, const char* whole, const char* piece)
      : Form(answers, tokenizer), whole_(whole), piece_(piece) {}

  /// The fields of a choice but for index, log-probabilities and finish.
  virtual Json content_of(const Choice& choice) const = 0;
  /// An event that tells nothing has these.
  virtual Json nothing() const = 0;
  virtual Json logprobs_of(const Chances& chances, std::int64_t* characters) const = 0;
  Json head(const char* kind) const;
  Json usage() const;
  /// An event.
  std::string piece(std::size_t choice, Json fields) const;

 private:
  const char *whole_, *piece_;
};

}  // namespace bie::cli
