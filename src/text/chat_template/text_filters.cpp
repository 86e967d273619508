// Filters that make texts.
#include <algorithm>

#include "text/chat_template/escape.h"
#include "text/chat_template/filters.h"
#include "text/chat_template/format.h"
#include "text/chat_template/operations.h"
#include "text/chat_template/parameters.h"
#include "text/chat_template/text_operations.h"

namespace bie::text::chat {
namespace {

using Args = const Arguments&;

/// A filter's text keeps that its value is HTML.
Value made(Runtime& runtime, const Value& value, MarkedText text) {
  const Value result = runtime.string(std::move(text));
  return value.is(Kind::string) && value.is_markup() ? result.as_markup() : result;
}

template <MarkedText (*change)(Runtime&, const MarkedText&)>
Value changed(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "this filter", arguments, {});
  return made(runtime, value, change(runtime, shown(runtime, value)));
}

template <Case wanted>
MarkedText all_in_case(Runtime& runtime, const MarkedText& text) {
  return in_case(runtime, text, wanted);
}

Value trim(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "trim", arguments, {"chars"});
  const auto chars = p.is_set(0) ? std::optional<MarkedText>(p.text(0)) : std::nullopt;
  return made(runtime, value, stripped(runtime, shown(runtime, value), chars, Side::both));
}

Value replace(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "replace", arguments, {"old", "new", "count"}, 2);
  return runtime.string(replaced(runtime, shown(runtime, value), shown(runtime, p[0]), shown(runtime, p[1]),
                                 p.is_set(2) ? p.whole(2, -1) : -1));
}

Value join(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "join", arguments, {"d", "attribute"});
  Joined joined(runtime, p.has(0) ? shown(runtime, p[0]) : MarkedText());
  for (const Value& part : items_of(runtime, value))
    joined.add(shown(runtime, p.is_set(1) ? path(runtime, part, p[1]) : part));
  return runtime.string(joined.take());
}

Value string(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "string", arguments, {});
  return value.is(Kind::string) ? value : runtime.string(shown(runtime, value));
}

Value safe(Runtime& runtime, const Value& value, Args arguments) {
  return string(runtime, value, arguments).as_markup();
}

Value escape(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "escape", arguments, {});
  if (value.is(Kind::string) && value.is_markup()) return value;
  return runtime.string(html_escaped(runtime, shown(runtime, value))).as_markup();
}

Value force_escape(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "forceescape", arguments, {});
  return runtime.string(html_escaped(runtime, shown(runtime, value))).as_markup();
}

Value format(Runtime& runtime, const Value& value, Args arguments) {
  const Value text = runtime.string(shown(runtime, value));
  if (arguments.named.empty()) return percent_formatted(runtime, text, runtime.tuple(arguments.positional));
  if (!arguments.positional.empty()) refuse("can't handle positional and keyword arguments at the same time");
  Dict::Entries entries;
  for (const auto& [name, named] : arguments.named) entries.emplace_back(runtime.string(name, true), named);
  return percent_formatted(runtime, text, runtime.dict(entries));
}

Value center(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "center", arguments, {"width"});
  return made(runtime, value,
              padded(runtime, shown(runtime, value), p.whole(0, 80), MarkedText(" ", false), Side::both));
}

Value indent(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "indent", arguments, {"width", "first", "blank"});
  if (!value.is(Kind::string)) refuse("indent expects a string, got ", type_name(value));
  MarkedText indention("    ", false);
  if (p.has(0) && p[0].is(Kind::string)) {
    indention = p.text(0);
  } else if (p.has(0)) {
    const auto width = static_cast<std::size_t>(std::max<std::int64_t>(0, p.whole(0, 4)));
    runtime.meter.check_text(width);
    indention = MarkedText(std::string(width, ' '), false);
  }
  MarkedText text = value.text();
  text.append("\n", false);
  const std::vector<MarkedText> lines = lines_of(runtime, text);
  MarkedText result;
  bool is_first = true;
  for (const MarkedText& line : lines) {
    runtime.meter.step();
    runtime.meter.check_text(result.size() + indention.size() + line.size() + 1);
    if (!is_first) result.append("\n", false);
    if ((is_first && p.truth(1)) || (!is_first && (p.truth(2) || !line.empty()))) result.append(indention);
    is_first = false;
    result.append(line);
  }
  return made(runtime, value, std::move(result));
}

Value truncate(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "truncate", arguments, {"length", "killwords", "end", "leeway"});
  if (!value.is(Kind::string)) refuse("truncate expects a string, got ", type_name(value));
  const MarkedText end = p.has(2) ? p.text(2) : MarkedText("...", false);
  const auto end_length = static_cast<std::int64_t>(count_characters(end.bytes()));
  runtime.meter.step((value.text().size() + end.size()) / 16);
  const std::int64_t length = p.whole(0, 255), leeway = p.is_set(3) ? p.whole(3, 5) : 5;
  if (length < end_length || leeway < 0) refuse("truncate expects a length of at least that of its end, got less");
  const auto count = static_cast<std::int64_t>(count_characters(value.bytes()));
  if (count - leeway <= length) return value;
  MarkedText text = value.text().part(0, offset_of(value.bytes(), static_cast<std::size_t>(length - end_length)));
  if (!p.truth(1)) {
    const std::size_t space = text.bytes().rfind(' ');
    if (space != std::string::npos) text = text.part(0, space);
  }
  text.append(end);
  return made(runtime, value, std::move(text));
}

bool is_word(std::uint32_t code) { return code == '_' || is_letter(code) || is_numeric(code); }

Value count_words(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "wordcount", arguments, {});
  const MarkedText text = shown(runtime, value);
  const std::string& bytes = text.bytes();
  runtime.meter.step(class_steps(bytes));
  std::int64_t words = 0;
  bool is_inside = false;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t next = next_character(bytes, at);
    const bool is_part = is_word(code_of(std::string_view(bytes).substr(at, next - at)));
    words += is_part && !is_inside ? 1 : 0;
    is_inside = is_part;
    at = next;
  }
  return Value::of(words);
}

MarkedText url_quoted(const MarkedText& text, std::string_view safe) {
  constexpr char digits[] = "0123456789ABCDEF";
  MarkedText result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text.bytes()[i];
    const auto byte = static_cast<unsigned char>(c);
    const bool stays = byte < 0x80 && (is_letter(byte) || is_decimal(byte) || safe.find(c) != std::string_view::npos);
    if (stays)
      result.append({&c, 1}, text.mark_at(i));
    else
      result.append(std::string{'%', digits[byte >> 4], digits[byte & 15]}, text.mark_at(i));
  }
  return result;
}

Value url_encode(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "urlencode", arguments, {});
  if (value.is(Kind::string) || !is_iterable(value)) return runtime.string(url_quoted(shown(runtime, value), "_.-~/"));
  Dict::Entries pairs;
  if (value.is(Kind::dict)) {
    pairs = value.dict().entries;
  } else {
    for (const Value& pair : items_of(runtime, value)) {
      const std::vector<Value> both = items_of(runtime, pair);
      if (both.size() != 2) refuse("expected 2 values to unpack, got ", both.size());
      pairs.emplace_back(both[0], both[1]);
    }
  }
  const auto quoted = [&](const Value& part) {
    const MarkedText text = url_quoted(shown(runtime, part), "_.-~");
    return replaced(runtime, text, MarkedText("%20", false), MarkedText("+", false), -1);
  };
  Joined joined(runtime, MarkedText("&", false));
  for (const auto& [key, part] : pairs) {
    MarkedText text = quoted(key);
    text.append("=", false);
    text.append(quoted(part));
    runtime.meter.step(text.size() / 4);
    joined.add(text);
  }
  return runtime.string(joined.take());
}

constexpr Filter filters[] = {
    {"trim", trim},
    {"upper", changed<all_in_case<Case::upper>>},
    {"lower", changed<all_in_case<Case::lower>>},
    {"capitalize", changed<capitalized>},
    {"title", changed<titled_words>},
    {"replace", replace},
    {"join", join},
    {"string", string},
    {"safe", safe},
    {"escape", escape},
    {"e", escape},
    {"forceescape", force_escape},
    {"format", format},
    {"center", center},
    {"indent", indent},
    {"truncate", truncate},
    {"wordcount", count_words},
    {"urlencode", url_encode},
    {"tojson", to_json},
};

}  // namespace

const Filter* text_filter(std::string_view name) { return found_filter(filters, name); }

}  // namespace bie::text::chat
