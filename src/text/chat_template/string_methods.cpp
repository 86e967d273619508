// Methods of str.
#include <algorithm>
#include <array>

#include "text/chat_template/format.h"
#include "text/chat_template/methods.h"
#include "text/chat_template/parameters.h"
#include "text/chat_template/search.h"
#include "text/chat_template/text_operations.h"

namespace bie::text::chat {
namespace {

using Args = const Arguments&;

Value made(Runtime& runtime, const Value& self, MarkedText text) {
  const Value result = runtime.string(std::move(text));
  return self.is_markup() ? result.as_markup() : result;
}

Value list_of(Runtime& runtime, const Value& self, std::vector<MarkedText> parts) {
  std::vector<Value> values;
  values.reserve(parts.size());
  for (MarkedText& part : parts) values.push_back(made(runtime, self, std::move(part)));
  return runtime.list(std::move(values));
}

std::optional<MarkedText> optional_text(const Parameters& p, std::size_t i) {
  return p.is_set(i) ? std::optional<MarkedText>(p.text(i)) : std::nullopt;
}

template <Side side>
Value strip(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "strip", arguments, {"/chars"});
  return made(runtime, self, stripped(runtime, self.text(), optional_text(p, 0), side));
}

template <Side from>
Value split_method(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "split", arguments, {"sep", "maxsplit"});
  return list_of(runtime, self, split(runtime, self.text(), optional_text(p, 0), p.whole(1, -1), from));
}

Value splitlines(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "splitlines", arguments, {"keepends"});
  return list_of(runtime, self, lines_of(runtime, self.text(), p.whole(0, 0) != 0));
}

template <bool from_right>
Value partition(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "partition", arguments, {"/sep"}, 1);
  const MarkedText& text = self.text();
  const std::string& separator = p.text(0).bytes();
  if (separator.empty()) refuse("empty separator");
  runtime.meter.step(text.size() / 16);
  const std::size_t found =
      from_right ? find_last(runtime, text.bytes(), separator) : find_first(text.bytes(), separator);
  std::vector<MarkedText> parts(3);
  if (found == std::string::npos) {
    parts[from_right ? 2 : 0] = text;
  } else {
    const std::size_t end = found + separator.size();
    parts = {text.part(0, found), text.part(found, end), text.part(end, text.size())};
  }
  std::vector<Value> values;
  values.reserve(parts.size());
  for (MarkedText& part : parts) values.push_back(made(runtime, self, std::move(part)));
  return runtime.tuple(std::move(values));
}

template <bool at_end>
Value has_affix(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, at_end ? "endswith" : "startswith", arguments, {"/affix", "/start", "/end"}, 1);
  Value part = self;
  if (p.has(1)) {
    const Value none = Value::none();
    const auto bound = [&](std::size_t i) { return p.is_set(i) ? Value::of(p.whole(i, 0)) : none; };
    runtime.meter.step(self.text().size() / 16);
    const std::int64_t count = static_cast<std::int64_t>(count_characters(self.bytes()));
    const Value first = bound(1), last = bound(2);
    if (first.is_whole() && first.whole() > count) return Value::of(false);
    std::int64_t begin = first.is_whole() ? first.whole() : 0, end = last.is_whole() ? last.whole() : count;
    begin = std::clamp<std::int64_t>(begin < 0 ? begin + count : begin, 0, count);
    end = std::clamp<std::int64_t>(end < 0 ? end + count : end, 0, count);
    if (begin > end) return Value::of(false);
    const std::size_t from = offset_of(self.bytes(), static_cast<std::size_t>(begin));
    part = runtime.string(self.text().part(from, offset_of(self.bytes(), static_cast<std::size_t>(end))));
  }
  const auto has = [&](const Value& affix) {
    if (!affix.is(Kind::string)) refuse("expected a string or a tuple of them, got ", type_name(affix));
    return at_end ? part.bytes().ends_with(affix.bytes()) : part.bytes().starts_with(affix.bytes());
  };
  if (!p[0].is(Kind::sequence) || p[0].sequence().flavour != Flavour::tuple) return Value::of(has(p[0]));
  const auto& all = p[0].sequence().values;
  return Value::of(std::any_of(all.begin(), all.end(), has));
}

Value replace(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "replace", arguments, {"/old", "/new", "/count"}, 2);
  return made(runtime, self, replaced(runtime, self.text(), p.text(0), p.text(1), p.whole(2, -1)));
}

template <bool at_end>
Value remove_affix(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, at_end ? "removesuffix" : "removeprefix", arguments, {"/affix"}, 1);
  const std::string& affix = p.text(0).bytes();
  const std::string& bytes = self.bytes();
  if (!(at_end ? bytes.ends_with(affix) : bytes.starts_with(affix))) return self;
  return made(runtime, self,
              at_end ? self.text().part(0, bytes.size() - affix.size()) : self.text().part(affix.size(), bytes.size()));
}

Value join(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "join", arguments, {"/iterable"}, 1);
  Joined joined(runtime, self.text());
  for (const Value& value : items_of(runtime, p[0])) {
    if (!value.is(Kind::string)) refuse("join() expects strings, got ", type_name(value));
    joined.add(value.text());
  }
  return made(runtime, self, joined.take());
}

template <MarkedText (*change)(Runtime&, const MarkedText&)>
Value changed(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "this method", arguments, {});
  return made(runtime, self, change(runtime, self.text()));
}

template <Case wanted>
MarkedText all_in_case(Runtime& runtime, const MarkedText& text) {
  return in_case(runtime, text, wanted);
}

template <bool from_right, bool must_be>
Value find(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "find", arguments, {"/sub", "/start", "/end"}, 1);
  const std::int64_t found = find_in(runtime, self.text(), p.text(0), p.has(1) ? p[1] : Value::none(),
                                     p.has(2) ? p[2] : Value::none(), from_right);
  if (must_be && found < 0) refuse("substring not found");
  return Value::of(found);
}

Value count(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "count", arguments, {"/sub"}, 1);
  const std::string& wanted = p.text(0).bytes();
  runtime.meter.step(self.text().size() / 16);
  if (wanted.empty()) return Value::of(static_cast<std::int64_t>(count_characters(self.bytes()) + 1));
  std::int64_t found = 0;
  for (std::size_t at = 0; (at = find_first(self.bytes(), wanted, at)) != std::string::npos; at += wanted.size())
    ++found;
  return Value::of(found);
}

template <Side text_side>
Value pad(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "center", arguments, {"/width", "/fillchar"}, 1);
  const MarkedText fill = p.has(1) ? p.text(1) : MarkedText(" ", false);
  return made(runtime, self, padded(runtime, self.text(), p.whole(0, 0), fill, text_side));
}

Value zfill(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "zfill", arguments, {"/width"}, 1);
  const std::string& bytes = self.bytes();
  const bool is_signed = !bytes.empty() && (bytes[0] == '-' || bytes[0] == '+');
  const std::size_t sign = is_signed ? 1 : 0;
  MarkedText result = self.text().part(0, sign);
  result.append(padded(runtime, self.text().part(sign, bytes.size()), p.whole(0, 0) - static_cast<std::int64_t>(sign),
                       MarkedText("0", false), Side::right));
  return made(runtime, self, std::move(result));
}

/// Whether there are characters, and all of them are such.
template <bool (*is)(std::uint32_t)>
Value all_are(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "this method", arguments, {});
  const std::string& bytes = self.bytes();
  runtime.meter.step(class_steps(bytes));
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t next = next_character(bytes, at);
    if (!is(code_of(std::string_view(bytes).substr(at, next - at)))) return Value::of(false);
    at = next;
  }
  return Value::of(!bytes.empty());
}

bool is_alnum(std::uint32_t code) { return is_letter(code) || is_numeric(code); }
bool is_ascii(std::uint32_t code) { return code < 0x80; }

Value isascii(Runtime& runtime, const Value& self, Args arguments) {
  return self.text().empty() ? Value::of(true) : all_are<is_ascii>(runtime, self, arguments);
}

/// Whether there are characters with cases, and all of them have this one.
template <bool (*is)(std::uint32_t), bool (*is_other)(std::uint32_t)>
Value has_case(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "this method", arguments, {});
  const std::string& bytes = self.bytes();
  runtime.meter.step(class_steps(bytes));
  bool has_any = false;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t next = next_character(bytes, at);
    const std::uint32_t code = code_of(std::string_view(bytes).substr(at, next - at));
    if (is_other(code)) return Value::of(false);
    has_any = has_any || is(code);
    at = next;
  }
  return Value::of(has_any);
}

/// Whether upper case begins each word of letters, and there is one.
Value istitle(Runtime& runtime, const Value& self, Args arguments) {
  const Parameters p(runtime, "istitle", arguments, {});
  const std::string& bytes = self.bytes();
  runtime.meter.step(class_steps(bytes));
  bool is_inside = false, has_any = false;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t next = next_character(bytes, at);
    const std::uint32_t code = code_of(std::string_view(bytes).substr(at, next - at));
    const bool is_title = in_case(code, Case::title) == utf8(code) && in_case(code, Case::lower) != utf8(code);
    if (is_title ? is_inside : is_lower(code) && !is_inside) return Value::of(false);
    is_inside = is_title || is_lower(code);
    has_any = has_any || is_inside;
    at = next;
  }
  return Value::of(has_any);
}

Value format(Runtime& runtime, const Value& self, Args arguments) {
  return made(runtime, self, brace_formatted(runtime, self.text(), arguments));
}

constexpr Method methods[] = {
    {"strip", strip<Side::both>},
    {"lstrip", strip<Side::left>},
    {"rstrip", strip<Side::right>},
    {"split", split_method<Side::left>},
    {"rsplit", split_method<Side::right>},
    {"splitlines", splitlines},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"startswith", has_affix<false>},
    {"endswith", has_affix<true>},
    {"replace", replace},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"join", join},
    {"upper", changed<all_in_case<Case::upper>>},
    {"lower", changed<all_in_case<Case::lower>>},
    {"capitalize", changed<capitalized>},
    {"title", changed<titled>},
    {"swapcase", changed<swapped_case>},
    {"find", find<false, false>},
    {"rfind", find<true, false>},
    {"index", find<false, true>},
    {"rindex", find<true, true>},
    {"count", count},
    {"center", pad<Side::both>},
    {"ljust", pad<Side::left>},
    {"rjust", pad<Side::right>},
    {"zfill", zfill},
    {"isspace", all_are<is_space>},
    {"isalpha", all_are<is_letter>},
    {"isdigit", all_are<is_digit>},
    {"isdecimal", all_are<is_decimal>},
    {"isnumeric", all_are<is_numeric>},
    {"isalnum", all_are<is_alnum>},
    {"isascii", isascii},
    {"istitle", istitle},
    {"isupper", has_case<is_upper, is_lower>},
    {"islower", has_case<is_lower, is_upper>},
    {"format", format},
};

}  // namespace

std::optional<Value> string_method(const Value& value, std::string_view name) {
  return bound_method(methods, value, name);
}

}  // namespace bie::text::chat
