// What Python does with values: truth, equality, order, iteration, and how it prints them.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "text/chat_template/runtime.h"

namespace bie::text::chat {

bool truth(const Value& value);
/// The value of a key, null where there is none.
const Value* look_up(Runtime& runtime, const Dict& dict, const Value& key);
bool equal(Runtime& runtime, const Value& a, const Value& b);
/// Refuses values that have no order.
std::partial_ordering order(Runtime& runtime, const Value& a, const Value& b, std::string_view sign = "<");
/// `item in container`.
bool contains(Runtime& runtime, const Value& container, const Value& item);

bool is_iterable(const Value& value);
/// What a for statement would go through; an iterator gives the rest of it once.
std::vector<Value> items_of(Runtime& runtime, const Value& value);
/// `len(value)`, refused where there is none.
std::int64_t length_of(Runtime& runtime, const Value& value);
bool has_length(const Value& value);

/// `str(value)`; characters of texts keep their marks.
MarkedText shown(Runtime& runtime, const Value& value);
/// `repr(value)`.
MarkedText repr(Runtime& runtime, const Value& value);
/// The shortest digits that read back as the number, as Python lays them out.
std::string shown_real(double value);

}  // namespace bie::text::chat
