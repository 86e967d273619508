// Attributes, items and slices.
#include <algorithm>
#include <limits>

#include "text/chat_template/characters.h"
#include "text/chat_template/methods.h"
#include "text/chat_template/operations.h"
#include "text/chat_template/python.h"

namespace bie::text::chat {
namespace {

bool is_any_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Whether a method would change its list or dict, which the sandbox does not let templates do.
bool changes(const Value& value, std::string_view name) {
  if (value.is(Kind::dict)) return is_any_of(name, {"clear", "pop", "popitem", "setdefault", "update"});
  return value.is(Kind::sequence) && value.sequence().flavour == Flavour::list &&
         is_any_of(name, {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"});
}

Value unsafe(Runtime& runtime, const Value& value, std::string_view name) {
  return runtime.undefined(
      formats::joined("access to attribute '", name, "' of '", type_name(value), "' object is unsafe"));
}

Value missing(Runtime& runtime, const Value& value, std::string_view name) {
  const std::string type = value.is(Kind::none) ? "None" : formats::joined(type_name(value), " object");
  return runtime.undefined(formats::joined("'", type, "' has no attribute ", formats::in_quotes(name)));
}

/// The item of a key, where there is one.
std::optional<Value> found(Runtime& runtime, const Value& value, const Value& key) {
  if (value.is(Kind::dict)) {
    if (!is_hashable(key)) return std::nullopt;
    const Value* const item = look_up(runtime, value.dict(), key);
    return item == nullptr ? std::nullopt : std::optional<Value>(*item);
  }
  if (!key.is_whole()) return std::nullopt;
  if (value.is(Kind::string)) {
    const std::string& bytes = value.bytes();
    runtime.meter.step(bytes.size() / 64);
    const std::int64_t count = static_cast<std::int64_t>(count_characters(bytes));
    const std::int64_t at = key.whole() < 0 ? key.whole() + count : key.whole();
    if (at < 0 || at >= count) return std::nullopt;
    const std::size_t begin = offset_of(bytes, static_cast<std::size_t>(at));
    const Value part = runtime.string(value.text().part(begin, next_character(bytes, begin)));
    return value.is_markup() ? part.as_markup() : part;
  }
  if (!value.is(Kind::sequence) || value.sequence().flavour >= Flavour::keys) return std::nullopt;
  const auto& values = value.sequence().values;
  const auto count = static_cast<std::int64_t>(values.size());
  const std::int64_t at = key.whole() < 0 ? key.whole() + count : key.whole();
  if (at < 0 || at >= count) return std::nullopt;
  return values[static_cast<std::size_t>(at)];
}

std::optional<Value> loop_member(Runtime& runtime, const Value& value, std::string_view name) {
  const Loop& loop = value.loop();
  const auto at = static_cast<std::int64_t>(loop.at), count = static_cast<std::int64_t>(loop.items.size());
  const auto number = [](std::int64_t n) { return Value::of(n, true); };
  if (name == "index") return number(at + 1);
  if (name == "index0") return number(at);
  if (name == "revindex") return number(count - at);
  if (name == "revindex0") return number(count - at - 1);
  if (name == "length") return number(count);
  if (name == "depth") return number(loop.depth + 1);
  if (name == "depth0") return number(loop.depth);
  if (name == "first") return Value::of(at == 0, true);
  if (name == "last") return Value::of(at + 1 == count, true);
  if (name == "previtem") return at > 0 ? loop.items[loop.at - 1] : runtime.undefined("there is no previous item");
  if (name == "nextitem") return at + 1 < count ? loop.items[loop.at + 1] : runtime.undefined("there is no next item");
  return loop_method(value, name);
}

/// Where a slice begins or ends, as Python clips it.
std::int64_t clipped(const Value& bound, std::int64_t otherwise, std::int64_t count, bool is_down) {
  if (bound.is(Kind::none)) return otherwise;
  if (!bound.is_whole()) refuse("slice indices must be integers or None");
  const std::int64_t least = is_down ? -1 : 0, most = is_down ? count - 1 : count;
  const std::int64_t at = bound.whole() < 0 ? bound.whole() + count : bound.whole();
  return std::clamp(at, least, std::max(least, most));
}

}  // namespace

std::optional<Value> member(Runtime& runtime, const Value& value, std::string_view name) {
  if (changes(value, name)) return unsafe(runtime, value, name);
  switch (value.kind()) {
    case Kind::string: return string_method(value, name);
    case Kind::sequence: return sequence_method(value, name);
    case Kind::dict: return dict_method(value, name);
    case Kind::loop: return loop_member(runtime, value, name);
    case Kind::names: {
      runtime.meter.step(value.names().all.size() / 32);
      const Value* const found = value.names().find(name);
      return found == nullptr ? std::nullopt : std::optional<Value>(*found);
    }
    case Kind::function:
      for (const auto& [key, of_function] : value.function().attributes)
        if (key == name) return of_function;
      return std::nullopt;
    default: return std::nullopt;
  }
}

Value attribute(Runtime& runtime, const Value& value, std::string_view name) {
  expect_defined(value);
  if (name.starts_with("__") && name.ends_with("__")) return unsafe(runtime, value, name);
  if (auto result = member(runtime, value, name)) return *result;
  if (value.is(Kind::dict))
    if (const Value* const item = value.dict().find(name)) return *item;
  return missing(runtime, value, name);
}

Value item(Runtime& runtime, const Value& value, const Value& key) {
  expect_defined(value);
  if (auto result = found(runtime, value, key)) return *result;
  if (!key.is(Kind::string)) {
    const MarkedText shown_key = key.is(Kind::undefined) ? MarkedText() : repr(runtime, key);
    return runtime.undefined(formats::joined(type_name(value), " object has no element ", shown_key.bytes()));
  }
  const std::string& name = key.bytes();
  if (name.starts_with("__") && name.ends_with("__")) return unsafe(runtime, value, name);
  if (auto result = member(runtime, value, name)) return *result;
  return missing(runtime, value, name);
}

Value slice(Runtime& runtime, const Value& value, const Value& begin, const Value& end, const Value& step) {
  expect_defined(value);
  const bool is_sequence = value.is(Kind::sequence) && value.sequence().flavour < Flavour::keys;
  if (!is_sequence && !value.is(Kind::string)) refuse("'", type_name(value), "' object has no slices");
  if (!step.is(Kind::none) && !step.is_whole()) refuse("slice indices must be integers or None");
  const std::int64_t by = step.is(Kind::none) ? 1 : step.whole();
  if (by == 0) refuse("slice step cannot be zero");
  const std::int64_t count = length_of(runtime, value);
  std::int64_t from = clipped(begin, by < 0 ? count - 1 : 0, count, by < 0);
  const std::int64_t to = clipped(end, by < 0 ? -1 : count, count, by < 0);
  if (is_sequence) {
    std::vector<Value> values;
    for (; by < 0 ? from > to : from < to;) {
      values.push_back(value.sequence().values[static_cast<std::size_t>(from)]);
      if (__builtin_add_overflow(from, by, &from)) break;
    }
    const bool is_tuple = value.sequence().flavour == Flavour::tuple;
    return runtime.sequence(is_tuple ? Flavour::tuple : Flavour::list, std::move(values));
  }
  const std::string& bytes = value.bytes();
  runtime.meter.step(bytes.size() / 64);
  MarkedText text;
  if (by == 1) {
    if (from < to) {
      const std::size_t first = offset_of(bytes, static_cast<std::size_t>(from));
      const std::size_t length = offset_of(std::string_view(bytes).substr(first), static_cast<std::size_t>(to - from));
      text = value.text().part(first, first + length);
    }
  } else {
    std::vector<std::size_t> offsets;
    for (std::size_t at = 0; at < bytes.size(); at = next_character(bytes, at)) offsets.push_back(at);
    runtime.meter.step(offsets.size());
    offsets.push_back(bytes.size());
    for (; by < 0 ? from > to : from < to;) {
      const auto at = static_cast<std::size_t>(from);
      text.append(value.text(), offsets[at], offsets[at + 1]);
      if (__builtin_add_overflow(from, by, &from)) break;
    }
  }
  const Value result = runtime.string(std::move(text));
  return value.is_markup() ? result.as_markup() : result;
}

Value path(Runtime& runtime, const Value& value, const Value& names) {
  if (names.is(Kind::none)) return value;
  if (!names.is(Kind::string)) return item(runtime, value, names);
  Value result = value;
  std::string_view left = names.bytes();
  for (;;) {
    const std::size_t dot = left.find('.');
    const std::string_view name = left.substr(0, dot);
    const bool is_number =
        !name.empty() && name.size() < 18 && name.find_first_not_of("0123456789") == std::string::npos;
    result = item(runtime, result,
                  is_number ? Value::of(static_cast<std::int64_t>(std::stoll(std::string(name))))
                            : runtime.string(std::string(name)));
    if (dot == std::string_view::npos) return result;
    left.remove_prefix(dot + 1);
  }
}

}  // namespace bie::text::chat
