// Methods by their names, bound to a value; none where Python has no such method.
#pragma once

#include <optional>
#include <string_view>

#include "text/chat_template/runtime.h"

namespace bie::text::chat {

std::optional<Value> string_method(const Value& value, std::string_view name);
std::optional<Value> sequence_method(const Value& value, std::string_view name);
std::optional<Value> dict_method(const Value& value, std::string_view name);
/// cycle and changed.
std::optional<Value> loop_method(const Value& value, std::string_view name);

/// A row of a table of methods.
struct Method {
  std::string_view name;
  Value (*body)(Runtime& runtime, const Value& self, const Arguments& arguments);
};

template <class Table>
std::optional<Value> bound_method(const Table& table, const Value& self, std::string_view name) {
  for (const Method& method : table) {
    if (method.name != name) continue;
    return Runtime::function(std::string(name), [self, body = method.body](Runtime& runtime, Arguments& arguments) {
      return body(runtime, self, arguments);
    });
  }
  return std::nullopt;
}

}  // namespace bie::text::chat
