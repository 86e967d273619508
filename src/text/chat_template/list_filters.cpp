// Filters of lists and dicts.
#include <algorithm>

#include "text/chat_template/filters.h"
#include "text/chat_template/operations.h"
#include "text/chat_template/parameters.h"
#include "text/chat_template/text_operations.h"

namespace bie::text::chat {
namespace {

using Args = const Arguments&;

/// Strings in lower case, unless case matters.
Value sort_key(Runtime& runtime, const Value& value, bool is_case_sensitive) {
  if (is_case_sensitive || !value.is(Kind::string)) return value;
  return runtime.string(in_case(runtime, value.text(), Case::lower));
}

bool is_less(Runtime& runtime, const Value& a, const Value& b) { return std::is_lt(order(runtime, a, b)); }

/// A stable order by keys that may refuse to be compared.
std::vector<Value> sorted(Runtime& runtime, const std::vector<Value>& values, const std::vector<Value>& keys,
                          bool is_reverse) {
  std::vector<std::size_t> places(values.size());
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = i;
  // std::stable_sort may compare by an order that is none, NaN's, without leaving the range.
  std::stable_sort(places.begin(), places.end(), [&](std::size_t a, std::size_t b) {
    return is_reverse ? is_less(runtime, keys[b], keys[a]) : is_less(runtime, keys[a], keys[b]);
  });
  std::vector<Value> result;
  result.reserve(places.size());
  for (const std::size_t place : places) result.push_back(values[place]);
  return result;
}

Value sort(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const std::vector<Value> values = items_of(runtime, value);
  std::vector<Value> names = {Value::none()};
  if (p.is_set(2)) names[0] = p[2];
  if (names[0].is(Kind::string)) {
    const auto parts = split(runtime, names[0].text(), MarkedText(",", false), -1, Side::left);
    names.clear();
    names.reserve(parts.size());
    for (const MarkedText& part : parts) names.push_back(runtime.string(part));
  }
  std::vector<Value> keys;
  for (const Value& item : values) {
    std::vector<Value> key;
    key.reserve(names.size());
    for (const Value& name : names) key.push_back(sort_key(runtime, path(runtime, item, name), p.truth(1)));
    keys.push_back(runtime.list(std::move(key)));
  }
  return runtime.list(sorted(runtime, values, keys, p.whole(0, 0) != 0));
}

Value dictsort(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = p.has(1) ? p.text(1).bytes() : "key";
  if (by != "key" && by != "value") refuse("you can only sort by either \"key\" or \"value\"");
  expect_defined(value);
  if (!value.is(Kind::dict)) refuse("dictsort expects a dict, got ", type_name(value));
  std::vector<Value> values, keys;
  for (const auto& entry : value.dict().entries) {
    values.push_back(runtime.tuple({entry.first, entry.second}));
    keys.push_back(sort_key(runtime, by == "key" ? entry.first : entry.second, p.truth(0)));
  }
  return runtime.list(sorted(runtime, values, keys, p.whole(2, 0) != 0));
}

Value unique(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "unique", arguments, {"case_sensitive", "attribute"});
  std::map<Value, bool, KeyLess> seen;
  std::vector<Value> result;
  for (const Value& item : items_of(runtime, value)) {
    const Value key = sort_key(runtime, p.is_set(1) ? path(runtime, item, p[1]) : item, p.truth(0));
    if (!is_hashable(key)) refuse("unhashable type: '", type_name(key), "'");
    if (key.is(Kind::string)) runtime.meter.step(key.text().size() / 16);
    if (seen.try_emplace(key, true).second) result.push_back(item);
  }
  return runtime.sequence(Flavour::iterator, std::move(result));
}

template <bool wants_least>
Value extreme(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, wants_least ? "min" : "max", arguments, {"case_sensitive", "attribute"});
  const std::vector<Value> values = items_of(runtime, value);
  if (values.empty()) return runtime.undefined("no aggregated item, sequence was empty");
  const auto key_of = [&](const Value& item) {
    return sort_key(runtime, p.is_set(1) ? path(runtime, item, p[1]) : item, p.truth(0));
  };
  Value best = values[0], best_key = key_of(best);
  for (std::size_t i = 1; i < values.size(); ++i) {
    Value key = key_of(values[i]);
    if (!(wants_least ? is_less(runtime, key, best_key) : is_less(runtime, best_key, key))) continue;
    best = values[i];
    best_key = std::move(key);
  }
  return best;
}

Value sum(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "sum", arguments, {"attribute", "start"});
  Value result = p.has(1) ? p[1] : Value::of(std::int64_t{0}, true);
  if (result.is(Kind::string)) refuse("sum() can't sum strings");
  for (const Value& item : items_of(runtime, value))
    result = binary(runtime, "+", result, p.is_set(0) ? path(runtime, item, p[0]) : item);
  return result;
}

Value length(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "length", arguments, {});
  return Value::of(length_of(runtime, value));
}

Value first(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "first", arguments, {});
  if (value.is(Kind::sequence) && value.sequence().flavour == Flavour::iterator) {
    const Sequence& all = value.sequence();
    return all.next < all.values.size() ? all.values[all.next++]
                                        : runtime.undefined("no first item, sequence was empty");
  }
  const std::vector<Value> values = items_of(runtime, value);
  return values.empty() ? runtime.undefined("no first item, sequence was empty") : values.front();
}

Value last(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "last", arguments, {});
  if (value.is(Kind::sequence) && value.sequence().flavour == Flavour::iterator)
    refuse("'generator' object is not reversible");
  const std::vector<Value> values = items_of(runtime, value);
  return values.empty() ? runtime.undefined("no last item, sequence was empty") : values.back();
}

Value list(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "list", arguments, {});
  return runtime.list(items_of(runtime, value));
}

Value reverse(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "reverse", arguments, {});
  std::vector<Value> values = items_of(runtime, value);
  std::reverse(values.begin(), values.end());
  if (!value.is(Kind::string)) {
    const bool is_iterator = value.is(Kind::sequence) && value.sequence().flavour == Flavour::iterator;
    return is_iterator ? runtime.list(std::move(values)) : runtime.sequence(Flavour::iterator, std::move(values));
  }
  MarkedText text;
  for (const Value& character : values) text.append(character.text());
  return runtime.string(std::move(text));
}

Value items(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "items", arguments, {});
  std::vector<Value> result;
  if (!value.is(Kind::undefined)) {
    if (!value.is(Kind::dict)) refuse("can only get item pairs from a mapping");
    for (const auto& [key, entry] : value.dict().entries) result.push_back(runtime.tuple({key, entry}));
  }
  return runtime.sequence(Flavour::iterator, std::move(result));
}

Value batch(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "batch", arguments, {"linecount", "fill_with"}, 1);
  std::vector<Value> result, line;
  const auto flush = [&] {
    result.push_back(runtime.list(std::move(line)));
    line.clear();
  };
  const auto size = [&] { return Value::of(static_cast<std::int64_t>(line.size())); };
  for (const Value& item : items_of(runtime, value)) {
    if (equal(runtime, size(), p[0])) flush();
    line.push_back(item);
  }
  if (line.empty()) return runtime.sequence(Flavour::iterator, std::move(result));
  if (p.is_set(1) && std::is_lt(order(runtime, size(), p[0]))) {
    const std::int64_t count = p.whole(0, 1);
    runtime.meter.step(static_cast<std::size_t>(count));
    line.resize(static_cast<std::size_t>(count), p[1]);
  }
  flush();
  return runtime.sequence(Flavour::iterator, std::move(result));
}

Value slice_filter(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "slice", arguments, {"slices", "fill_with"}, 1);
  const std::vector<Value> values = items_of(runtime, value);
  const std::int64_t count = p.whole(0, 1), all = static_cast<std::int64_t>(values.size());
  if (count == 0) refuse("division by zero");
  std::vector<Value> result;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    runtime.meter.step();
    const bool has_extra = i < all % count;
    const std::int64_t end = begin + all / count + (has_extra ? 1 : 0);
    std::vector<Value> part(values.begin() + begin, values.begin() + end);
    if (p.is_set(1) && !has_extra) part.push_back(p[1]);
    result.push_back(runtime.list(std::move(part)));
    begin = end;
  }
  return runtime.sequence(Flavour::iterator, std::move(result));
}

Value groupby(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const std::vector<Value> values = items_of(runtime, value);
  const auto attribute_of = [&](const Value& item) {
    const Value found = path(runtime, item, p[0]);
    return found.is(Kind::undefined) && p.is_set(1) ? p[1] : found;
  };
  std::vector<Value> keys;
  keys.reserve(values.size());
  for (const Value& item : values) keys.push_back(sort_key(runtime, attribute_of(item), p.truth(2)));
  std::vector<Value> groups, group;
  std::optional<Value> group_key;
  const auto flush = [&] {
    if (group.empty()) return;
    const Value grouper = p.truth(2) ? *group_key : attribute_of(group[0]);
    const Value all = runtime.list(std::move(group));
    auto pair = std::make_shared<Sequence>(Flavour::tuple, std::vector<Value>{grouper, all}, runtime.meter);
    pair->is_group = true;
    groups.push_back(Value::object(Kind::sequence, std::move(pair)));
    group.clear();
  };
  for (const Value& item : sorted(runtime, values, keys, false)) {
    const Value key = sort_key(runtime, attribute_of(item), p.truth(2));
    if (!group_key || !equal(runtime, *group_key, key)) flush();
    group_key = key;
    group.push_back(item);
  }
  flush();
  return runtime.list(std::move(groups));
}

/// Arguments behind the first `count`.
Arguments rest_of(const Arguments& arguments, std::size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(), rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

std::string name_of(const Value& value) {
  if (!value.is(Kind::string)) refuse("expected the name of a filter or a test, got ", type_name(value));
  return value.bytes();
}

Value map(Runtime& runtime, const Value& value, Args arguments) {
  std::vector<Value> result;
  if (!truth(value)) return runtime.sequence(Flavour::iterator, {});
  if (arguments.positional.empty()) {
    const Parameters p(runtime, "map", arguments, {"attribute", "default"}, 1);
    for (const Value& item : items_of(runtime, value)) {
      const Value found = path(runtime, item, p[0]);
      result.push_back(found.is(Kind::undefined) && p.is_set(1) ? p[1] : found);
    }
    return runtime.sequence(Flavour::iterator, std::move(result));
  }
  const std::string name = name_of(arguments.positional[0]);
  const Arguments rest = rest_of(arguments, 1);
  for (const Value& item : items_of(runtime, value)) result.push_back(apply_filter(runtime, name, item, rest));
  return runtime.sequence(Flavour::iterator, std::move(result));
}

template <bool by_attribute, bool wanted>
Value select(Runtime& runtime, const Value& value, Args arguments) {
  constexpr std::size_t own = by_attribute ? 1 : 0;
  if (!truth(value)) return runtime.sequence(Flavour::iterator, {});
  const auto& given = arguments.positional;
  if (given.size() < own) refuse("missing parameter for attribute name");
  const bool has_test = given.size() > own;
  const std::string name = has_test ? name_of(given[own]) : "";
  const Arguments rest = has_test ? rest_of(arguments, own + 1) : Arguments{};
  std::vector<Value> result;
  for (const Value& item : items_of(runtime, value)) {
    const Value part = by_attribute ? path(runtime, item, given[0]) : item;
    runtime.meter.step();
    if ((has_test ? passes_test(runtime, name, part, rest) : truth(part)) == wanted) result.push_back(item);
  }
  return runtime.sequence(Flavour::iterator, std::move(result));
}

Value default_value(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "default", arguments, {"default_value", "boolean"});
  if (!value.is(Kind::undefined) && !(p.truth(1) && !truth(value))) return value;
  return p.has(0) ? p[0] : runtime.string("");
}

Value attribute_filter(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "attr", arguments, {"name"}, 1);
  const std::string& name = p.text(0).bytes();
  if (auto found = value.is(Kind::undefined) ? std::nullopt : member(runtime, value, name)) return *found;
  return runtime.undefined(
      formats::joined("'", type_name(value), " object' has no attribute ", formats::in_quotes(name)));
}

constexpr Filter filters[] = {
    {"sort", sort},
    {"dictsort", dictsort},
    {"unique", unique},
    {"min", extreme<true>},
    {"max", extreme<false>},
    {"sum", sum},
    {"length", length},
    {"count", length},
    {"first", first},
    {"last", last},
    {"list", list},
    {"reverse", reverse},
    {"items", items},
    {"batch", batch},
    {"slice", slice_filter},
    {"groupby", groupby},
    {"map", map},
    {"select", select<false, true>},
    {"reject", select<false, false>},
    {"selectattr", select<true, true>},
    {"rejectattr", select<true, false>},
    {"default", default_value},
    {"d", default_value},
    {"attr", attribute_filter},
};

}  // namespace

const Filter* list_filter(std::string_view name) { return found_filter(filters, name); }

}  // namespace bie::text::chat
