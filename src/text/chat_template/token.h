// Tokens of a template's source.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bie::text::chat {

enum class TokenKind : std::uint8_t {
  data,            ///< text between tags
  block_begin,     ///< {%
  block_end,       ///< %}
  variable_begin,  ///< {{
  variable_end,    ///< }}
  name,
  string,
  integer,
  real,
  sign,  ///< an operator or a bracket
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 1;
  std::string text;  ///< a string's characters, a name, a sign
  std::int64_t whole = 0;
  double number = 0;
};

/// Jinja's tokens with trim_blocks and lstrip_blocks: white space around tags and comments are gone.
std::vector<Token> tokens_of(std::string_view source);

}  // namespace bie::text::chat
