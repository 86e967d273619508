// Operators, and what stands behind a dot and in brackets.
#pragma once

#include <optional>
#include <string_view>

#include "text/chat_template/runtime.h"

namespace bie::text::chat {

/// + - * / // % **
Value binary(Runtime& runtime, std::string_view sign, const Value& a, const Value& b);
Value unary(std::string_view sign, const Value& a);
/// == != < <= > >= in, not in
bool compare(Runtime& runtime, std::string_view sign, const Value& a, const Value& b);
/// Texts of all values, one behind the other.
Value concat(Runtime& runtime, const std::vector<Value>& values);

/// `value.name`: a method or attribute, then an item, then an undefined value.
Value attribute(Runtime& runtime, const Value& value, std::string_view name);
/// `value[key]`: an item, then a method or attribute, then an undefined value.
Value item(Runtime& runtime, const Value& value, const Value& key);
Value slice(Runtime& runtime, const Value& value, const Value& begin, const Value& end, const Value& step);
/// Bound methods of texts, lists and dicts, and attributes of loops and functions.
std::optional<Value> member(Runtime& runtime, const Value& value, std::string_view name);
/// An attribute's path, "a.b.0": names and numbers, each an item of what the part before it gives.
Value path(Runtime& runtime, const Value& value, const Value& names);

/// Refuses an undefined value.
void expect_defined(const Value& value);

}  // namespace bie::text::chat
