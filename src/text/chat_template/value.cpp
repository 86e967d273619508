#include "text/chat_template/value.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace bie::text::chat {
namespace {

int depth_of(const std::vector<Value>& values) {
  int deepest = 0;
  for (const Value& value : values) deepest = std::max(deepest, value.depth());
  if (deepest >= deepest_value) refuse("expected lists of at most ", deepest_value, " levels, got more");
  return deepest + 1;
}

/// Ranks of keys that can never be equal.
int rank(const Value& key) {
  if (key.is(Kind::none)) return 0;
  if (key.is_number()) return 1;
  if (key.is(Kind::string)) return 2;
  if (key.is(Kind::undefined)) return 3;
  return key.is(Kind::sequence) && key.sequence().flavour == Flavour::tuple ? 4 : 5;
}

bool less_number(const Value& a, const Value& b) {
  const auto wide = [](const Value& v) {
    return v.is_whole() ? static_cast<long double>(v.whole()) : static_cast<long double>(v.real());
  };
  const long double x = wide(a), y = wide(b);
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && !std::isnan(y);
  return x < y;
}

}  // namespace

Value Value::of(bool value, bool mark) {
  Value result(Kind::boolean, mark);
  result.whole_ = value ? 1 : 0;
  return result;
}

Value Value::of(std::int64_t value, bool mark) {
  Value result(Kind::integer, mark);
  result.whole_ = value;
  return result;
}

Value Value::of(double value, bool mark) {
  Value result(Kind::real, mark);
  result.real_ = value;
  return result;
}

const MarkedText& Value::text() const { return static_cast<const String&>(*object_).text; }
const Sequence& Value::sequence() const { return static_cast<const Sequence&>(*object_); }
const Dict& Value::dict() const { return static_cast<const Dict&>(*object_); }
Names& Value::names() const { return const_cast<Names&>(static_cast<const Names&>(*object_)); }
Loop& Value::loop() const { return const_cast<Loop&>(static_cast<const Loop&>(*object_)); }
const Function& Value::function() const { return static_cast<const Function&>(*object_); }

std::string Value::why() const { return object_ == nullptr ? "the value is undefined" : bytes(); }

Value Value::as_markup() const {
  Value result = *this;
  result.markup_ = true;
  return result;
}

Value Value::as_plain() const {
  Value result = *this;
  result.markup_ = false;
  return result;
}

bool Value::is_same(const Value& other) const {
  if (kind_ != other.kind_) return false;
  if (object_ != nullptr || other.object_ != nullptr) return object_ == other.object_;
  return kind_ == Kind::real ? real_ == other.real_ : whole_ == other.whole_;
}

int Value::depth() const {
  if (kind_ == Kind::sequence) return sequence().depth;
  return kind_ == Kind::dict ? dict().depth : 0;
}

Sequence::Sequence(Flavour f, std::vector<Value> v, Meter& meter)
    : flavour(f),
      values(std::move(v)),
      depth(depth_of(values)),
      charge(meter, values.size() * sizeof(Value) + sizeof(Sequence)) {}

bool KeyLess::operator()(const Value& a, const Value& b) const {
  const int x = rank(a), y = rank(b);
  if (x != y) return x < y;
  switch (x) {
    case 0:
    case 3: return false;
    case 1: return less_number(a, b);
    case 2: return a.bytes() < b.bytes();
    case 5: return std::less<>()(a.address(), b.address());
    default: break;
  }
  const auto& left = a.sequence().values;
  const auto& right = b.sequence().values;
  return std::lexicographical_compare(left.begin(), left.end(), right.begin(), right.end(), KeyLess());
}

Dict::Dict(const Entries& all, Meter& meter) : charge_(meter, all.size() * 4 * sizeof(Value) + sizeof(Dict)) {
  for (const auto& [key, value] : all) {
    if (!is_hashable(key)) refuse("unhashable type: '", type_name(key), "'");
    const auto [place, is_new] = places_.try_emplace(key, entries.size());
    if (is_new)
      entries.emplace_back(key, value);
    else
      entries[place->second].second = value;
    depth = std::max({depth, key.depth() + 1, value.depth() + 1});
  }
  if (depth > deepest_value) refuse("expected dicts of at most ", deepest_value, " levels, got more");
}

const Value* Dict::find(const Value& key) const {
  if (!is_hashable(key)) refuse("unhashable type: '", type_name(key), "'");
  const auto found = places_.find(key);
  return found == places_.end() ? nullptr : &entries[found->second].second;
}

const Value* Dict::find(std::string_view key) const {
  const MarkedText text(std::string(key), false);
  return find(Value::object(Kind::string, std::make_shared<String>(text)));
}

const Value* Names::find(std::string_view name) const {
  for (const auto& [key, value] : all)
    if (key == name) return &value;
  return nullptr;
}

void Names::set(std::string_view name, Value value) {
  for (auto& [key, old] : all) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  all.emplace_back(name, std::move(value));
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return "Undefined";
    case Kind::none: return "NoneType";
    case Kind::boolean: return "bool";
    case Kind::integer: return "int";
    case Kind::real: return "float";
    case Kind::string: return "str";
    case Kind::dict: return "dict";
    case Kind::names: return "Namespace";
    case Kind::loop: return "LoopContext";
    case Kind::function: return "function";
    case Kind::sequence: break;
  }
  switch (value.sequence().flavour) {
    case Flavour::list: return "list";
    case Flavour::tuple: return "tuple";
    case Flavour::range: return "range";
    case Flavour::keys: return "dict_keys";
    case Flavour::values: return "dict_values";
    case Flavour::items: return "dict_items";
    case Flavour::iterator: return "generator";
  }
  return "object";
}

bool is_hashable(const Value& value) {
  if (value.is(Kind::dict)) return false;
  if (!value.is(Kind::sequence)) return true;
  const Sequence& sequence = value.sequence();
  if (sequence.flavour != Flavour::tuple)
    return sequence.flavour != Flavour::list && sequence.flavour != Flavour::keys && sequence.flavour != Flavour::items;
  return std::all_of(sequence.values.begin(), sequence.values.end(), is_hashable);
}

}  // namespace bie::text::chat
