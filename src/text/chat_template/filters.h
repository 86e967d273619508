// Filters and tests by their names.
#pragma once

#include <string_view>

#include "text/chat_template/runtime.h"

namespace bie::text::chat {

Value apply_filter(Runtime& runtime, std::string_view name, const Value& value, const Arguments& arguments);
bool passes_test(Runtime& runtime, std::string_view name, const Value& value, const Arguments& arguments);
bool is_filter(std::string_view name);
bool is_test(std::string_view name);

/// A row of a table of filters.
struct Filter {
  std::string_view name;
  Value (*body)(Runtime& runtime, const Value& value, const Arguments& arguments);
};

/// Null where the table has no such filter.
const Filter* text_filter(std::string_view name);
const Filter* list_filter(std::string_view name);
const Filter* number_filter(std::string_view name);

template <class Table>
const Filter* found_filter(const Table& table, std::string_view name) {
  for (const Filter& filter : table)
    if (filter.name == name) return &filter;
  return nullptr;
}

/// The filter tojson.
Value to_json(Runtime& runtime, const Value& value, const Arguments& arguments);

}  // namespace bie::text::chat
