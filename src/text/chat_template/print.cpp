// How Python prints values.
#include <charconv>
#include <cmath>

#include "text/chat_template/characters.h"
#include "text/chat_template/python.h"

namespace bie::text::chat {
namespace {

void append_checked(Runtime& runtime, MarkedText& text, const MarkedText& part) {
  runtime.meter.check_text(text.size() + part.size());
  text.append(part);
}

MarkedText repr_string(const MarkedText& text) {
  const std::string& bytes = text.bytes();
  const bool is_double = bytes.find('\'') != std::string::npos && bytes.find('"') == std::string::npos;
  const char quote = is_double ? '"' : '\'';
  MarkedText result(std::string(1, quote), false);
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t next = next_character(bytes, at);
    const bool mark = text.mark_at(at);
    const std::string_view character = std::string_view(bytes).substr(at, next - at);
    if (character[0] == quote || character[0] == '\\')
      result.append(std::string("\\").append(character), mark);
    else if (is_printable(code_of(character)))
      result.append(character, mark);
    else
      result.append(escaped(code_of(character)), mark);
    at = next;
  }
  result.append(std::string(1, quote), false);
  return result;
}

MarkedText repr_sequence(Runtime& runtime, const Sequence& sequence) {
  if (sequence.flavour == Flavour::range) return {sequence.shown, false};
  if (sequence.flavour == Flavour::iterator) refuse("expected a value that prints, got a generator");
  const bool is_tuple = sequence.flavour == Flavour::tuple;
  MarkedText text;
  if (sequence.flavour == Flavour::keys) text.append("dict_keys(", false);
  if (sequence.flavour == Flavour::values) text.append("dict_values(", false);
  if (sequence.flavour == Flavour::items) text.append("dict_items(", false);
  text.append(is_tuple ? "(" : "[", false);
  bool is_first = true;
  for (const Value& value : sequence.values) {
    if (!is_first) text.append(", ", false);
    is_first = false;
    append_checked(runtime, text, repr(runtime, value));
  }
  if (is_tuple && sequence.values.size() == 1) text.append(",", false);
  text.append(is_tuple ? ")" : "]", false);
  if (sequence.flavour >= Flavour::keys) text.append(")", false);
  return text;
}

MarkedText repr_dict(Runtime& runtime, const Dict::Entries& entries) {
  MarkedText text("{", false);
  bool is_first = true;
  for (const auto& [key, value] : entries) {
    if (!is_first) text.append(", ", false);
    is_first = false;
    append_checked(runtime, text, repr(runtime, key));
    text.append(": ", false);
    append_checked(runtime, text, repr(runtime, value));
  }
  text.append("}", false);
  return text;
}

MarkedText repr_names(Runtime& runtime, const Names& names) {
  Dict::Entries entries;
  for (const auto& [name, value] : names.all) entries.emplace_back(runtime.string(name), value);
  MarkedText text("<Namespace ", false);
  append_checked(runtime, text, repr_dict(runtime, entries));
  text.append(">", false);
  return text;
}

}  // namespace

std::string shown_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const std::string_view all(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = all.find('e');
  const int exponent = std::stoi(std::string(all.substr(e + 1)));
  if (exponent < -4 || exponent >= 16) return std::string(all);
  const auto fixed = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed).ptr;
  std::string text(buffer, static_cast<std::size_t>(fixed - buffer));
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

MarkedText shown(Runtime& runtime, const Value& value) {
  if (value.is(Kind::string)) return value.text();
  if (value.is(Kind::undefined)) return {};
  return repr(runtime, value);
}

MarkedText repr(Runtime& runtime, const Value& value) {
  const Level level(runtime);
  switch (value.kind()) {
    case Kind::undefined: return {"Undefined", false};
    case Kind::none: return {"None", value.mark()};
    case Kind::boolean: return {value.boolean() ? "True" : "False", value.mark()};
    case Kind::integer: return {std::to_string(value.whole()), value.mark()};
    case Kind::real: return {shown_real(value.real()), value.mark()};
    case Kind::string: {
      runtime.meter.step(class_steps(value.bytes()));
      MarkedText text = repr_string(value.text());
      if (!value.is_markup()) return text;
      MarkedText markup("Markup(", false);
      markup.append(text);
      markup.append(")", false);
      return markup;
    }
    case Kind::sequence: return repr_sequence(runtime, value.sequence());
    case Kind::dict: return repr_dict(runtime, value.dict().entries);
    case Kind::names: return repr_names(runtime, value.names());
    case Kind::loop:
      return {formats::joined("<LoopContext ", value.loop().at + 1, "/", value.loop().items.size(), ">"), false};
    case Kind::function: break;
  }
  if (value.function().shown.empty()) refuse("expected a value that prints, got the function ", value.function().name);
  return {value.function().shown, false};
}

}  // namespace bie::text::chat
