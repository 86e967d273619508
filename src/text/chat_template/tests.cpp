// The tests behind `is`, and the search for a filter or a test.
#include <algorithm>

#include "text/chat_template/filters.h"
#include "text/chat_template/methods.h"
#include "text/chat_template/operations.h"
#include "text/chat_template/parameters.h"

namespace bie::text::chat {
namespace {

using Args = const Arguments&;

struct Test {
  std::string_view name;
  bool (*body)(Runtime& runtime, const Value& value, const Arguments& arguments);
};

template <bool (*is)(const Value&)>
bool plain(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "this test", arguments, {});
  return is(value);
}

bool is_defined(const Value& v) { return !v.is(Kind::undefined); }
bool is_undefined(const Value& v) { return v.is(Kind::undefined); }
bool is_none(const Value& v) { return v.is(Kind::none); }
bool is_boolean(const Value& v) { return v.is(Kind::boolean); }
bool is_true(const Value& v) { return v.is(Kind::boolean) && v.boolean(); }
bool is_false(const Value& v) { return v.is(Kind::boolean) && !v.boolean(); }
bool is_integer(const Value& v) { return v.is(Kind::integer); }
bool is_float(const Value& v) { return v.is(Kind::real); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is(Kind::string); }
bool is_mapping(const Value& v) { return v.is(Kind::dict); }
bool is_callable(const Value& v) { return v.is(Kind::function) || v.is(Kind::loop) || v.is(Kind::undefined); }
bool is_escaped(const Value& v) { return v.is(Kind::string) && v.is_markup(); }
bool can_iterate(const Value& v) { return is_iterable(v) || v.is(Kind::loop); }
bool is_sequence(const Value& v) {
  return v.is(Kind::undefined) || v.is(Kind::string) || v.is(Kind::dict) ||
         (v.is(Kind::sequence) && v.sequence().flavour < Flavour::keys);
}

template <std::string_view const& sign>
bool compares(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, sign, arguments, {"/other"}, 1);
  return compare(runtime, sign, value, p[0]);
}

constexpr std::string_view eq = "==", ne = "!=", lt = "<", le = "<=", gt = ">", ge = ">=", in = "in";

template <std::int64_t rest>
bool has_rest(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "this test", arguments, {});
  return equal(runtime, binary(runtime, "%", value, Value::of(std::int64_t{2})), Value::of(rest));
}

bool is_divisible(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "divisibleby", arguments, {"num"}, 1);
  return equal(runtime, binary(runtime, "%", value, p[0]), Value::of(std::int64_t{0}));
}

bool is_same(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "sameas", arguments, {"other"}, 1);
  if (value.is(Kind::string) && p[0].is(Kind::string)) return value.bytes() == p[0].bytes();
  return value.is_same(p[0]);
}

template <std::string_view const& method>
bool has_case(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "this test", arguments, {});
  Arguments none;
  return truth(runtime.call(*string_method(runtime.string(shown(runtime, value)), method), none));
}

constexpr std::string_view islower = "islower", isupper = "isupper";

bool names_filter(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "filter", arguments, {});
  return value.is(Kind::string) && is_filter(value.bytes());
}

bool names_test(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "test", arguments, {});
  return value.is(Kind::string) && is_test(value.bytes());
}

constexpr Test all_tests[] = {
    {"defined", plain<is_defined>},
    {"undefined", plain<is_undefined>},
    {"none", plain<is_none>},
    {"boolean", plain<is_boolean>},
    {"true", plain<is_true>},
    {"false", plain<is_false>},
    {"integer", plain<is_integer>},
    {"float", plain<is_float>},
    {"number", plain<is_number>},
    {"string", plain<is_string>},
    {"mapping", plain<is_mapping>},
    {"sequence", plain<is_sequence>},
    {"iterable", plain<can_iterate>},
    {"callable", plain<is_callable>},
    {"escaped", plain<is_escaped>},
    {"odd", has_rest<1>},
    {"even", has_rest<0>},
    {"divisibleby", is_divisible},
    {"sameas", is_same},
    {"lower", has_case<islower>},
    {"upper", has_case<isupper>},
    {"filter", names_filter},
    {"test", names_test},
    {"in", compares<in>},
    {"==", compares<eq>},
    {"eq", compares<eq>},
    {"equalto", compares<eq>},
    {"!=", compares<ne>},
    {"ne", compares<ne>},
    {"<", compares<lt>},
    {"lt", compares<lt>},
    {"lessthan", compares<lt>},
    {"<=", compares<le>},
    {"le", compares<le>},
    {">", compares<gt>},
    {"gt", compares<gt>},
    {"greaterthan", compares<gt>},
    {">=", compares<ge>},
    {"ge", compares<ge>},
};

const Test* found_test(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(all_tests), std::end(all_tests), [&](const Test& test) { return test.name == name; });
  return found == std::end(all_tests) ? nullptr : found;
}

const Filter* any_filter(std::string_view name) {
  for (const auto table : {text_filter, list_filter, number_filter})
    if (const Filter* const found = table(name)) return found;
  return nullptr;
}

}  // namespace

bool is_filter(std::string_view name) { return any_filter(name) != nullptr; }
bool is_test(std::string_view name) { return found_test(name) != nullptr; }

Value apply_filter(Runtime& runtime, std::string_view name, const Value& value, const Arguments& arguments) {
  const Filter* const filter = any_filter(name);
  if (filter == nullptr) refuse("no filter named ", formats::in_quotes(name));
  return filter->body(runtime, value, arguments);
}

bool passes_test(Runtime& runtime, std::string_view name, const Value& value, const Arguments& arguments) {
  const Test* const test = found_test(name);
  if (test == nullptr) refuse("no test named ", formats::in_quotes(name));
  return test->body(runtime, value, arguments);
}

}  // namespace bie::text::chat
