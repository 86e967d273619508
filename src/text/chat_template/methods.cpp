// Methods of lists, tuples, dicts and loops.
#include "text/chat_template/methods.h"

#include <algorithm>

#include "text/chat_template/operations.h"
#include "text/chat_template/parameters.h"

namespace bie::text::chat {
namespace {

using Args = const Arguments&;

Value count(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "count", arguments, {"/value"}, 1);
  std::int64_t found = 0;
  for (const Value& value : self.sequence().values) found += equal(runtime, value, p[0]) ? 1 : 0;
  return Value::of(found);
}

Value index(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "index", arguments, {"/value"}, 1);
  const auto& values = self.sequence().values;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (equal(runtime, values[i], p[0])) return Value::of(static_cast<std::int64_t>(i));
  refuse("the value is not in the list");
}

Value copy(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "copy", arguments, {});
  return self.is(Kind::dict) ? runtime.dict(self.dict().entries) : runtime.list(self.sequence().values);
}

Value get(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "get", arguments, {"/key", "/default"}, 1);
  const Value* const found = look_up(runtime, self.dict(), p[0]);
  if (found != nullptr) return *found;
  return p.has(1) ? p[1] : Value::none();
}

Value keys(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "keys", arguments, {});
  std::vector<Value> all;
  for (const auto& entry : self.dict().entries) all.push_back(entry.first);
  return runtime.sequence(Flavour::keys, std::move(all));
}

Value values(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "values", arguments, {});
  std::vector<Value> all;
  for (const auto& entry : self.dict().entries) all.push_back(entry.second);
  return runtime.sequence(Flavour::values, std::move(all));
}

Value items(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "items", arguments, {});
  std::vector<Value> all;
  for (const auto& [key, value] : self.dict().entries) all.push_back(runtime.tuple({key, value}));
  return runtime.sequence(Flavour::items, std::move(all));
}

Value cycle(Runtime&, const Value& self, Args arguments) {
  if (arguments.positional.empty()) refuse("no items for cycling given");
  return arguments.positional[self.loop().at % arguments.positional.size()];
}

Value changed(Runtime& runtime, const Value& self, Args arguments) {
  Loop& loop = self.loop();
  const auto& given = arguments.positional;
  const bool is_same =
      loop.has_changed && std::equal(given.begin(), given.end(), loop.last_changed.begin(), loop.last_changed.end(),
                                     [&](const Value& a, const Value& b) { return equal(runtime, a, b); });
  loop.last_changed = given;
  loop.has_changed = true;
  return Value::of(!is_same);
}

constexpr Method list_methods[] = {{"count", count}, {"index", index}, {"copy", copy}};
constexpr Method tuple_methods[] = {{"count", count}, {"index", index}};
constexpr Method dict_methods[] = {{"get", get}, {"keys", keys}, {"values", values}, {"items", items}, {"copy", copy}};
constexpr Method loop_methods[] = {{"cycle", cycle}, {"changed", changed}};

}  // namespace

std::optional<Value> sequence_method(const Value& value, std::string_view name) {
  if (value.sequence().is_group && (name == "grouper" || name == "list"))
    return value.sequence().values[name == "list" ? 1 : 0];
  if (value.sequence().flavour == Flavour::list) return bound_method(list_methods, value, name);
  if (value.sequence().flavour <= Flavour::range) return bound_method(tuple_methods, value, name);
  return std::nullopt;
}

std::optional<Value> dict_method(const Value& value, std::string_view name) {
  return bound_method(dict_methods, value, name);
}

std::optional<Value> loop_method(const Value& value, std::string_view name) {
  return bound_method(loop_methods, value, name);
}

}  // namespace bie::text::chat
