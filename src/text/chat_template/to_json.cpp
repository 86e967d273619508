// json.dumps, as transformers gives it to templates.
#include <algorithm>
#include <cmath>

#include "text/chat_template/characters.h"
#include "text/chat_template/filters.h"
#include "text/chat_template/parameters.h"

namespace bie::text::chat {
namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const Parameters& p) : runtime_(runtime), is_ascii_(p.truth(0)), sorts_(p.truth(3)) {
    if (p.is_set(1)) {
      has_lines_ = true;
      if (p[1].is(Kind::string)) {
        indent_ = p.text(1);
      } else {
        const auto width = static_cast<std::size_t>(std::max<std::int64_t>(0, p.whole(1, 0)));
        runtime.meter.check_text(width);
        indent_ = MarkedText(std::string(width, ' '), false);
      }
      comma_ = MarkedText(",", false);
    }
    if (!p.is_set(2)) return;
    const std::vector<Value> both = items_of(runtime, p[2]);
    if (both.size() != 2 || !both[0].is(Kind::string) || !both[1].is(Kind::string))
      refuse("tojson expects two strings as separators");
    comma_ = both[0].text();
    colon_ = both[1].text();
  }

  MarkedText all(const Value& value) {
    write(value, 0);
    return std::move(text_);
  }

 private:
  void add(std::string_view text, bool mark = false) { text_.append(text, mark); }

  void line(int depth) {
    if (!has_lines_) return;
    add("\n");
    runtime_.meter.check_text(text_.size() + indent_.size() * static_cast<std::size_t>(depth));
    for (int i = 0; i < depth; ++i) text_.append(indent_);
  }

  void write(const Value& value, int depth) {
    const Level level(runtime_);
    runtime_.meter.check_text(text_.size());
    switch (value.kind()) {
      case Kind::none: return add("null", value.mark());
      case Kind::boolean: return add(value.boolean() ? "true" : "false", value.mark());
      case Kind::integer: return add(std::to_string(value.whole()), value.mark());
      case Kind::real: return add(number(value.real()), value.mark());
      case Kind::string: return string(value.text());
      case Kind::dict: return dict(value.dict(), depth);
      case Kind::sequence:
        if (value.sequence().flavour <= Flavour::tuple) return list(value.sequence().values, depth);
        break;
      default: break;
    }
    refuse("object of type ", type_name(value), " is not JSON serializable");
  }

  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return shown_real(value);
  }

  void list(const std::vector<Value>& values, int depth) {
    if (values.empty()) return add("[]");
    add("[");
    bool is_first = true;
    for (const Value& value : values) {
      if (!is_first) text_.append(comma_);
      is_first = false;
      line(depth + 1);
      write(value, depth + 1);
    }
    line(depth);
    add("]");
  }

  void dict(const Dict& dict, int depth) {
    if (dict.entries.empty()) return add("{}");
    Dict::Entries entries = dict.entries;
    runtime_.meter.step(entries.size());
    if (sorts_)
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto& a, const auto& b) { return std::is_lt(order(runtime_, a.first, b.first)); });
    add("{");
    bool is_first = true;
    for (const auto& [key, value] : entries) {
      if (!is_first) text_.append(comma_);
      is_first = false;
      line(depth + 1);
      write_key(key);
      text_.append(colon_);
      write(value, depth + 1);
    }
    line(depth);
    add("}");
  }

  void write_key(const Value& key) {
    if (key.is(Kind::string)) return string(key.text());
    if (!key.is_number() && !key.is(Kind::none))
      refuse("keys must be str, int, float, bool or None, not ", type_name(key));
    add("\"");
    write(key, 0);
    add("\"");
  }

  void string(const MarkedText& text) {
    const std::string& bytes = text.bytes();
    runtime_.meter.step(bytes.size() / 16);
    add("\"");
    std::size_t begin = 0;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t next = next_character(bytes, at);
      const std::string escape = escape_of(code_of(std::string_view(bytes).substr(at, next - at)));
      if (!escape.empty()) {
        text_.append(text, begin, at);
        add(escape, text.mark_at(at));
        begin = next;
      }
      at = next;
    }
    text_.append(text, begin, bytes.size());
    add("\"");
  }

  /// Empty for a character that stands for itself.
  std::string escape_of(std::uint32_t code) const {
    if (code >= 0x20 && code < 0x80 && code != '"' && code != '\\') return {};
    switch (code) {
      case '"': return "\\\"";
      case '\\': return "\\\\";
      case '\n': return "\\n";
      case '\r': return "\\r";
      case '\t': return "\\t";
      case '\f': return "\\f";
      case '\b': return "\\b";
      default: break;
    }
    if (code < 0x20) return unit(code);
    if (!is_ascii_) return {};
    if (code < 0x10000) return unit(code);
    return unit(0xd800 + ((code - 0x10000) >> 10)) + unit(0xdc00 + ((code - 0x10000) & 0x3ff));
  }

  static std::string unit(std::uint32_t code) {
    constexpr char digits[] = "0123456789abcdef";
    std::string text = "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) text += digits[code >> shift & 15];
    return text;
  }

  Runtime& runtime_;
  bool is_ascii_, sorts_, has_lines_ = false;
  MarkedText comma_ = MarkedText(", ", false), colon_ = MarkedText(": ", false), indent_;
  MarkedText text_;
};

}  // namespace

Value to_json(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters p(runtime, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  return runtime.string(JsonWriter(runtime, p).all(value));
}

}  // namespace bie::text::chat
