// The fields of a request's body, read with a sentence for each that is wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/support/result.h"

namespace bie::cli {

/// The fields of an object; null counts as absent. What a call throws is an ApiError of status 400 naming the field.
class Fields {
 public:
  /// @param body  outlives this.
  explicit Fields(const Json& body) : body_(body) {}

  /// Null where it is absent.
  const Json* find(const char* name) const;
  bool flag(const char* name) const;
  double number(const char* name, double least, double most, double absent) const;
  std::int64_t whole(const char* name, std::int64_t least, std::int64_t most, std::int64_t absent) const;
  /// The text of a field. @throws ApiError where it is absent too.
  std::string text(const char* name) const;
  /// The text of a field, or `absent`.
  std::string text(const char* name, const std::string& absent) const;
  /// A list of tokens, which may be empty. @throws ApiError where it is absent too.
  std::vector<std::int32_t> tokens(const char* name, std::int64_t vocabulary) const;

  [[noreturn]] static void fail(const std::string& name, const std::string& wanted, const Json& got);

 private:
  const Json& body_;
};

/// The tokens of a list. @throws ApiError naming the field, and what is no token.
std::vector<std::int32_t> tokens_of_list(const char* name, const Json& list, std::int64_t vocabulary);

/// The object that a body holds. @throws ApiError
Json body_object(const std::string& body);

}  // namespace bie::cli
