// How one value is formatted: width, sign, digits.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/chat_template/runtime.h"

namespace bie::text::chat {

struct FormatSpec {
  std::string_view fill = " ";
  char align = '\0';  ///< < > ^ = or none
  char sign = '-';    ///< - + or space
  bool is_alternate = false;
  char separator = '\0';  ///< of thousands
  std::int64_t width = 0, precision = -1;
  char type = '\0';
  bool is_empty = true;  ///< whether nothing is asked for
};

/// [[fill]align][sign][#][0][width][,][.precision][type]
FormatSpec format_spec(std::string_view text);
MarkedText formatted(Runtime& runtime, const Value& value, const FormatSpec& spec);
/// Digits of a number without its sign.
std::string digits_of(const Value& value, const FormatSpec& spec);
MarkedText with_width(Runtime& runtime, MarkedText text, const FormatSpec& spec, std::size_t sign_bytes = 0);

}  // namespace bie::text::chat
