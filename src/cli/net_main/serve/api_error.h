// A refusal of a request.
#pragma once

#include <stdexcept>
#include <string>

#include "cli/support/result.h"

namespace bie::cli {

struct ApiError : std::runtime_error {
  ApiError(int http_status, const std::string& sentence, std::string field = "", std::string word = "")
      : std::runtime_error(sentence), status(http_status), param(std::move(field)), code(std::move(word)) {}

  int status;
  std::string param, code;  ///< null where empty
};

/// As OpenAI's interfaces tell it: {"error": {"message", "type", "param", "code"}}.
Json openai_error(const ApiError& error);
/// As Anthropic's tells it: {"type": "error", "error": {"type", "message"}}.
Json anthropic_error(const ApiError& error);

}  // namespace bie::cli
