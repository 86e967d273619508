// How an interface writes answers: whole, or as the events of a stream.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "bie/text/tokenizer.h"
#include "cli/net_main/serve/answers.h"
#include "cli/net_main/serve/api_error.h"
#include "cli/support/result.h"

namespace bie::cli {

/// Belongs to one request. Texts that it returns are events, one or several or none.
class Form {
 public:
  virtual ~Form() = default;

  virtual Json whole() = 0;
  /// The first events.
  virtual std::string begin() { return ""; }
  /// Tells what came of an answer.
  virtual std::string tell(std::size_t choice, const TextParts& parts, const Chances& chances) = 0;
  virtual std::string end_of(std::size_t choice) = 0;
  virtual std::string end() = 0;
  /// The last event of a stream that fails.
  virtual std::string failure(const ApiError& error) = 0;

 protected:
  /// @param answers    outlive the form, as the tokenizer does.
  Form(const Answers& answers, const text::Tokenizer& tokenizer) : answers_(answers), tokenizer_(tokenizer) {}
  Form(const Form&) = delete;
  Form& operator=(const Form&) = delete;

  std::string name_of(std::int32_t token) const;
  /// {"token", "logprob", "bytes", "top_logprobs"} for each token.
  Json chances_json(const Chances& chances) const;

  const Answers& answers_;
  const text::Tokenizer& tokenizer_;
};

/// JSON has no -infinity; clients know -9999 for it.
double told(double logprob);

/// An event without a name, and one whose name is its "type".
std::string event_of(const Json& json);
std::string named_event_of(const Json& json);

/// An interface: how it reads requests and writes answers and refusals.
struct Interface {
  const char* id;      ///< begins the names of answers
  const char* prompt;  ///< the field of the text that is read
  Asked (*read)(const Json& body, std::int64_t vocabulary);
  std::unique_ptr<Form> (*form)(const Answers& answers, const text::Tokenizer& tokenizer);
};
extern const Interface chat_interface, completion_interface, response_interface, message_interface;

}  // namespace bie::cli
