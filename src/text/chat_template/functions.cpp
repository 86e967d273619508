#include "text/chat_template/functions.h"

#include <array>
#include <ctime>

#include "text/chat_template/operations.h"
#include "text/chat_template/parameters.h"

namespace bie::text::chat {
namespace {

Value range(Runtime& runtime, Arguments& arguments) {
  constexpr std::int64_t longest = 100'000;
  const Parameters p(runtime, "range", arguments, {"/start", "/stop", "/step"}, 1);
  const std::int64_t begin = p.has(1) ? p.whole(0, 0) : 0, end = p.has(1) ? p.whole(1, 0) : p.whole(0, 0);
  const std::int64_t step = p.whole(2, 1);
  if (step == 0) refuse("range() arg 3 must not be zero");
  std::vector<Value> values;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<std::int64_t>(values.size()) == longest)
      refuse("range too big: expected at most ", longest, " integers, got more");
    values.push_back(Value::of(i, true));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  runtime.meter.step(values.size());
  auto sequence = std::make_shared<Sequence>(Flavour::range, std::move(values), runtime.meter);
  sequence->shown = formats::joined("range(", begin, ", ", end);
  if (step != 1) sequence->shown += formats::joined(", ", step);
  sequence->shown += ')';
  return Value::object(Kind::sequence, std::move(sequence));
}

/// The entries of dict(...) and namespace(...).
Dict::Entries entries_of(Runtime& runtime, std::string_view function, const Arguments& arguments) {
  if (arguments.positional.size() > 1) refuse(function, "() takes at most 1 argument by position, got more");
  Dict::Entries entries;
  for (const Value& value : arguments.positional) {
    if (value.is(Kind::dict)) {
      entries = value.dict().entries;
      continue;
    }
    for (const Value& pair : items_of(runtime, value)) {
      const std::vector<Value> both = items_of(runtime, pair);
      if (both.size() != 2) refuse(function, "() expects pairs, got ", both.size(), " values");
      entries.emplace_back(both[0], both[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) entries.emplace_back(runtime.string(name, true), value);
  return entries;
}

Value make_dict(Runtime& runtime, Arguments& arguments) { return runtime.dict(entries_of(runtime, "dict", arguments)); }

Value make_namespace(Runtime& runtime, Arguments& arguments) {
  Value names = runtime.names();
  const Value all = runtime.dict(entries_of(runtime, "namespace", arguments));
  for (const auto& [name, value] : all.dict().entries) {
    if (!name.is(Kind::string)) continue;  // no template could ask for it
    if (name.bytes().starts_with('_')) refuse("expected an attribute of a namespace without an underscore in front");
    names.names().all.emplace_back(name.bytes(), value);
  }
  return names;
}

Value make_cycler(Runtime& runtime, Arguments& arguments) {
  if (arguments.positional.empty()) refuse("at least one item has to be provided");
  Value names = runtime.names();
  const auto at = std::make_shared<std::size_t>(0);
  const auto move = [names, at, items = arguments.positional](std::size_t to) {
    Value current = items[*at];
    *at = to % items.size();
    names.names().set("current", items[*at]);
    return current;
  };
  names.names().set("current", arguments.positional[0]);
  names.names().set("next", Runtime::function("next", [move, at](Runtime&, Arguments&) { return move(*at + 1); }));
  names.names().set("reset", Runtime::function("reset", [move](Runtime&, Arguments&) {
                      move(0);
                      return Value::none();
                    }));
  return names;
}

Value make_joiner(Runtime& runtime, Arguments& arguments) {
  const Parameters p(runtime, "joiner", arguments, {"sep"});
  const Value separator = p.has(0) ? p[0] : runtime.string(", ", true);
  const auto is_used = std::make_shared<bool>(false);
  return Runtime::function("joiner", [separator, is_used](Runtime& inner, Arguments&) {
    return std::exchange(*is_used, true) ? separator : inner.string("");
  });
}

Value raise_exception(Runtime& runtime, Arguments& arguments) {
  const Parameters p(runtime, "raise_exception", arguments, {"message"}, 1);
  refuse(shown(runtime, p[0]).bytes());
}

Value strftime_now(Runtime& runtime, Arguments& arguments) {
  const Parameters p(runtime, "strftime_now", arguments, {"format"}, 1);
  const std::string& format = p.text(0).bytes();
  if (format.empty()) return runtime.string("");
  std::array<char, 4096> text{};
  // A text may be empty by its format: the sign in front tells that from one that is too long.
  const std::size_t size = std::strftime(text.data(), text.size(), formats::joined("=", format).c_str(), &*runtime.now);
  if (size == 0 || format.find('\0') != std::string::npos) refuse("expected a date of at most ", text.size(), " bytes");
  return runtime.string(std::string(text.data() + 1, size - 1));
}

}  // namespace

std::vector<std::pair<std::string, Value>> functions(Runtime& runtime) {
  const std::pair<std::string, Value (*)(Runtime&, Arguments&)> all[] = {
      {"range", range},
      {"dict", make_dict},
      {"namespace", make_namespace},
      {"cycler", make_cycler},
      {"joiner", make_joiner},
      {"raise_exception", raise_exception},
      {"strftime_now", strftime_now},
  };
  std::vector<std::pair<std::string, Value>> result;
  for (const auto& [name, body] : all)
    if (name != "strftime_now" || runtime.now) result.emplace_back(name, Runtime::function(name, body));
  return result;
}

}  // namespace bie::text::chat
