// All interfaces read these fields of requests.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "cli/net_main/serve/asked.h"
#include "cli/net_main/serve/fields.h"

namespace bie::cli {

constexpr std::int64_t most_answers = 128;                   ///< of a request
constexpr std::int64_t most_tokens = std::int64_t{1} << 30;  ///< that a request may name

/// How tokens are chosen, whether the answer is streamed, and when it has its turn. Temperature is 1 where a request
/// has none, as the interfaces say. What is not built is refused, so that nobody takes an answer for what it is not.
Asked common_fields(const Fields& fields, std::int64_t vocabulary);

/// A text, or a list of at most 16 that are not empty.
std::vector<std::string> stop_texts(const Fields& fields, const char* name);

/// One text of a content that is a text, or a list of parts of these types.
/// @param silent  types of parts that say nothing to the model.
/// @throws ApiError naming the field.
std::string text_of_content(const std::string& name, const Json& content, std::initializer_list<std::string_view> types,
                            std::initializer_list<std::string_view> silent = {});

}  // namespace bie::cli
