// Unicode's characters as Python's str has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template/runtime.h"

namespace bie::text::chat {

/// Where the character behind the one at `at` begins; the text is UTF-8.
std::size_t next_character(std::string_view text, std::size_t at);
std::size_t previous_character(std::string_view text, std::size_t at);
std::size_t count_characters(std::string_view text);
/// Where the character of that number begins; the end where there are fewer.
std::size_t offset_of(std::string_view text, std::size_t character);
std::uint32_t code_of(std::string_view character);
std::string utf8(std::uint32_t code);

/// Steps that looking up the class of each character counts for.
std::size_t class_steps(std::string_view text);

/// str.isspace.
bool is_space(std::uint32_t code);
/// Whether str.splitlines ends a line there.
bool is_line_end(std::uint32_t code);
/// str.isprintable.
bool is_printable(std::uint32_t code);
/// A character as repr writes it where it is not printable.
std::string escaped(std::uint32_t code);

enum class Case : std::uint8_t { upper, lower, title };
/// A character in another case: one to three characters.
std::string in_case(std::uint32_t code, Case wanted);
/// Whether a character has cases, and this one.
bool is_upper(std::uint32_t code);
bool is_lower(std::uint32_t code);
bool is_letter(std::uint32_t code);
bool is_decimal(std::uint32_t code);
/// str.isdigit: decimals, and digits above and below the line or in circles.
bool is_digit(std::uint32_t code);
bool is_numeric(std::uint32_t code);

/// A text's characters, each a text.
std::vector<Value> characters_of(Runtime& runtime, const Value& text);

}  // namespace bie::text::chat
