#include "text/chat_template/python.h"

#include <algorithm>

#include "text/chat_template/characters.h"
#include "text/chat_template/search.h"

namespace bie::text::chat {
namespace {

bool is_kind(const Value& value, Flavour flavour) {
  return value.is(Kind::sequence) && value.sequence().flavour == flavour;
}

bool equal_sequences(Runtime& runtime, const Value& a, const Value& b) {
  const auto& x = a.sequence();
  const auto& y = b.sequence();
  if (x.flavour != y.flavour || x.values.size() != y.values.size()) return false;
  if (x.flavour == Flavour::values || x.flavour == Flavour::iterator) return &x == &y;
  if (x.flavour == Flavour::keys || x.flavour == Flavour::items)
    return std::all_of(x.values.begin(), x.values.end(),
                       [&](const Value& value) { return contains(runtime, b, value); });
  for (std::size_t i = 0; i < x.values.size(); ++i)
    if (!equal(runtime, x.values[i], y.values[i])) return false;
  return true;
}

bool equal_dicts(Runtime& runtime, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const Value* const other = look_up(runtime, b, entry.first);
    return other != nullptr && equal(runtime, entry.second, *other);
  });
}

std::partial_ordering order_numbers(const Value& a, const Value& b) {
  if (a.is_whole() && b.is_whole()) return a.whole() <=> b.whole();
  const auto wide = [](const Value& v) {
    return v.is_whole() ? static_cast<long double>(v.whole()) : static_cast<long double>(v.real());
  };
  return wide(a) <=> wide(b);
}

std::partial_ordering order_sequences(Runtime& runtime, const Value& a, const Value& b, std::string_view sign) {
  const auto& x = a.sequence().values;
  const auto& y = b.sequence().values;
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
    if (!equal(runtime, x[i], y[i])) return order(runtime, x[i], y[i], sign);
  return x.size() <=> y.size();
}

}  // namespace

const Value* look_up(Runtime& runtime, const Dict& dict, const Value& key) {
  if (key.is(Kind::string)) runtime.meter.step(key.text().size() / 16);
  return dict.find(key);
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean:
    case Kind::integer: return value.whole() != 0;
    case Kind::real: return value.real() != 0;
    case Kind::string: return !value.text().empty();
    case Kind::sequence: return value.sequence().flavour == Flavour::iterator || !value.sequence().values.empty();
    case Kind::dict: return !value.dict().entries.empty();
    case Kind::loop: return !value.loop().items.empty();
    case Kind::names:
    case Kind::function: break;
  }
  return true;
}

bool equal(Runtime& runtime, const Value& a, const Value& b) {
  const Level level(runtime);
  if (a.is_number() && b.is_number()) return std::is_eq(order_numbers(a, b));
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none: return true;
    case Kind::string: runtime.meter.step(a.text().size() / 64); return a.bytes() == b.bytes();
    case Kind::sequence: return equal_sequences(runtime, a, b);
    case Kind::dict: return equal_dicts(runtime, a.dict(), b.dict());
    default: return a.is_same(b);
  }
}

std::partial_ordering order(Runtime& runtime, const Value& a, const Value& b, std::string_view sign) {
  const Level level(runtime);
  for (const Value* value : {&a, &b})
    if (value->is(Kind::undefined)) refuse(value->why());
  if (a.is_number() && b.is_number()) return order_numbers(a, b);
  if (a.is(Kind::string) && b.is(Kind::string)) {
    runtime.meter.step(a.text().size() / 64);
    return a.bytes() <=> b.bytes();
  }
  if ((is_kind(a, Flavour::list) && is_kind(b, Flavour::list)) ||
      (is_kind(a, Flavour::tuple) && is_kind(b, Flavour::tuple)))
    return order_sequences(runtime, a, b, sign);
  refuse("'", sign, "' not supported between instances of '", type_name(a), "' and '", type_name(b), "'");
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is(Kind::string)) {
    if (!item.is(Kind::string)) refuse("'in <string>' requires string as left operand, not ", type_name(item));
    runtime.meter.step(container.text().size() / 16);
    return find_first(container.bytes(), item.bytes()) != std::string::npos;
  }
  if (container.is(Kind::dict)) return look_up(runtime, container.dict(), item) != nullptr;
  if (!is_iterable(container)) refuse("argument of type '", type_name(container), "' is not iterable");
  const std::vector<Value> items = items_of(runtime, container);
  return std::any_of(items.begin(), items.end(), [&](const Value& other) { return equal(runtime, other, item); });
}

bool is_iterable(const Value& value) {
  return value.is(Kind::undefined) || value.is(Kind::string) || value.is(Kind::sequence) || value.is(Kind::dict);
}

std::vector<Value> items_of(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  if (value.is(Kind::undefined)) return items;
  if (value.is(Kind::string)) return characters_of(runtime, value);
  if (value.is(Kind::sequence)) {
    const Sequence& all = value.sequence();
    runtime.meter.step(all.values.size());
    if (all.flavour != Flavour::iterator) return all.values;
    items.assign(all.values.begin() + static_cast<std::ptrdiff_t>(all.next), all.values.end());
    all.next = all.values.size();
    return items;
  }
  if (!value.is(Kind::dict)) refuse("'", type_name(value), "' object is not iterable");
  runtime.meter.step(value.dict().entries.size());
  for (const auto& entry : value.dict().entries) items.push_back(entry.first);
  return items;
}

bool has_length(const Value& value) {
  return value.is(Kind::undefined) || value.is(Kind::string) || value.is(Kind::dict) || value.is(Kind::loop) ||
         (value.is(Kind::sequence) && value.sequence().flavour != Flavour::iterator);
}

std::int64_t length_of(Runtime& runtime, const Value& value) {
  if (!has_length(value)) refuse("object of type '", type_name(value), "' has no len()");
  std::size_t length = 0;
  if (value.is(Kind::string)) {
    runtime.meter.step(value.text().size() / 64);
    length = count_characters(value.bytes());
  }
  if (value.is(Kind::dict)) length = value.dict().entries.size();
  if (value.is(Kind::loop)) length = value.loop().items.size();
  if (value.is(Kind::sequence)) length = value.sequence().values.size();
  return static_cast<std::int64_t>(length);
}

}  // namespace bie::text::chat
