// A refusal of a request.
#pragma once

#include <stdexcept>
#include <string>

namespace bie::cli {

/// Told as OpenAI's errors are: {"error": {"message", "type", "param", "code"}}.
struct ApiError : std::runtime_error {
  ApiError(int http_status, const std::string& sentence, std::string field = "", std::string word = "")
      : std::runtime_error(sentence), status(http_status), param(std::move(field)), code(std::move(word)) {}

  int status;
  std::string param, code;  ///< null where empty
};

}  // namespace bie::cli
