#include "text/chat_template/format.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include "text/chat_template/characters.h"
#include "text/chat_template/format_spec.h"
#include "text/chat_template/operations.h"
#include "text/chat_template/python.h"

namespace bie::text::chat {
namespace {

/// One `format % values`.
class PercentFormat {
 public:
  PercentFormat(Runtime& runtime, const MarkedText& format, const Value& values)
      : runtime_(runtime), format_(format), values_(values) {}

  MarkedText all() {
    const std::string& bytes = format_.bytes();
    while (at_ < bytes.size()) {
      const std::size_t percent = std::min(bytes.find('%', at_), bytes.size());
      result_.append(format_, at_, percent);
      at_ = percent;
      if (at_ < bytes.size()) conversion();
      runtime_.meter.check_text(result_.size());
      runtime_.meter.step();
    }
    const bool is_tuple = values_.is(Kind::sequence) && values_.sequence().flavour == Flavour::tuple;
    const bool has_rest = is_tuple ? next_ < values_.sequence().values.size() : next_ == 0;
    if (has_rest && !values_.is(Kind::dict) && (is_tuple || !values_.is(Kind::sequence)))
      refuse("not all arguments converted during string formatting");
    return std::move(result_);
  }

 private:
  char take() {
    if (at_ >= format_.size()) refuse("incomplete format");
    return format_.bytes()[at_++];
  }

  Value next_value() {
    const bool is_tuple = values_.is(Kind::sequence) && values_.sequence().flavour == Flavour::tuple;
    const std::size_t count = is_tuple ? values_.sequence().values.size() : 1;
    if (next_ >= count) refuse("not enough arguments for format string");
    return is_tuple ? values_.sequence().values[next_++] : (++next_, values_);
  }

  std::int64_t number(char& c) {
    std::int64_t value = 0;
    if (c == '*') {
      const Value given = next_value();
      if (!given.is_whole()) refuse("* wants int");
      c = take();
      return given.whole();
    }
    for (; c >= '0' && c <= '9'; c = take()) {
      value = value * 10 + (c - '0');
      if (value > 1'000'000'000) refuse("expected a width of at most 10^9, got more");
    }
    return value;
  }

  void conversion() {
    const std::size_t begin = at_++;
    char c = take();
    std::optional<Value> named;
    if (c == '(') {
      const std::size_t close = format_.bytes().find(')', at_);
      if (close == std::string::npos) refuse("incomplete format key");
      if (!values_.is(Kind::dict)) refuse("format requires a mapping");
      const Value* const found = values_.dict().find(std::string_view(format_.bytes()).substr(at_, close - at_));
      if (found == nullptr) refuse("expected a value for each key of a format, got none");
      named = *found;
      at_ = close + 1;
      c = take();
    }
    FormatSpec spec;
    bool fills_zeros = false;
    for (; std::strchr("-+ #0", c) != nullptr && c != '\0'; c = take()) {
      if (c == '-') spec.align = '<';
      if (c == '+' || (c == ' ' && spec.sign != '+')) spec.sign = c;
      if (c == '#') spec.is_alternate = true;
      if (c == '0') fills_zeros = true;
    }
    spec.width = number(c);
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (c == '.') {
      c = take();
      spec.precision = std::max<std::int64_t>(0, number(c));
    }
    while (c == 'l' || c == 'h' || c == 'L') c = take();
    if (c == '%') return result_.append("%", format_.mark_at(begin));
    if (fills_zeros && spec.align == '\0') {
      spec.align = '=';
      spec.fill = "0";
    }
    append(named ? *named : next_value(), c, spec);
  }

  void append(const Value& value, char type, FormatSpec spec) {
    if (type == 's' || type == 'r' || type == 'a') {
      MarkedText text = type == 's' ? shown(runtime_, value) : repr(runtime_, value);
      if (spec.precision >= 0) text = text.part(0, offset_of(text.bytes(), static_cast<std::size_t>(spec.precision)));
      spec.fill = " ";
      if (spec.align != '<') spec.align = '>';
      return result_.append(with_width(runtime_, std::move(text), spec));
    }
    if (type == 'c') return character(value, spec);
    if (type == '\0' || std::strchr("diuoxXeEfFgG", type) == nullptr) refuse("unsupported format character");
    expect_defined(value);
    if (!value.is_number()) refuse("%", type, " format: a number is required, not ", type_name(value));
    const bool is_real = std::strchr("eEfFgG", type) != nullptr;
    Value number = value;
    if (!is_real && value.is(Kind::real)) {
      if (type == 'o' || type == 'x' || type == 'X') refuse("%", type, " format: an integer is required, not float");
      if (!(std::fabs(value.real()) < 9.2e18)) refuse("expected integers of 64 bits, got a larger one");
      number = Value::of(static_cast<std::int64_t>(value.real()), value.mark());
    }
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    const bool is_negative = number.is(Kind::real) || is_real ? std::signbit(number.real()) : number.whole() < 0;
    const std::string sign = is_negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
    std::string digits = digits_of(number, spec);
    if (!is_real && spec.precision > static_cast<std::int64_t>(digits.size())) {
      runtime_.meter.check_text(static_cast<std::size_t>(spec.precision));
      digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
    }
    if (spec.align == '\0') spec.align = '>';
    result_.append(with_width(runtime_, MarkedText(formats::joined(sign, digits), value.mark()), spec, sign.size()));
  }

  void character(const Value& value, FormatSpec spec) {
    if (spec.align != '<') spec.align = '>';
    spec.fill = " ";
    if (value.is(Kind::string)) {
      if (count_characters(value.bytes()) != 1) refuse("%c requires int or char");
      return result_.append(with_width(runtime_, value.text(), spec));
    }
    if (!value.is_whole() || value.whole() < 0 || value.whole() > 0x10ffff ||
        (value.whole() >= 0xd800 && value.whole() < 0xe000))
      refuse("%c requires int or char");
    MarkedText text(utf8(static_cast<std::uint32_t>(value.whole())), value.mark());
    result_.append(with_width(runtime_, std::move(text), spec));
  }

  Runtime& runtime_;
  const MarkedText& format_;
  const Value& values_;
  MarkedText result_;
  std::size_t at_ = 0, next_ = 0;
};

/// One `format.format(...)`.
class BraceFormat {
 public:
  BraceFormat(Runtime& runtime, const Arguments& arguments) : runtime_(runtime), arguments_(arguments) {}

  MarkedText all(const MarkedText& format, int depth) {
    if (depth > 2) refuse("max string recursion exceeded");
    const std::string& bytes = format.bytes();
    MarkedText result;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
      result.append(format, at, brace);
      if (brace == bytes.size()) break;
      const bool is_double = brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace];
      if (is_double) {
        result.append(format, brace, brace + 1);
        at = brace + 2;
        continue;
      }
      if (bytes[brace] == '}') refuse("single '}' encountered in format string");
      const std::size_t end = field_end(bytes, brace + 1);
      result.append(field(format.part(brace + 1, end), depth));
      runtime_.meter.check_text(result.size());
      runtime_.meter.step();
      at = end + 1;
    }
    return result;
  }

 private:
  static std::size_t field_end(const std::string& bytes, std::size_t at) {
    int open = 1;
    for (; at < bytes.size(); ++at) {
      if (bytes[at] == '{') ++open;
      if (bytes[at] == '}' && --open == 0) return at;
    }
    refuse("expected '}' before end of string");
  }

  MarkedText field(const MarkedText& text, int depth) {
    const std::string& bytes = text.bytes();
    std::size_t name_end = 0;
    for (bool in_brackets = false; name_end < bytes.size(); ++name_end) {
      if (bytes[name_end] == '[') in_brackets = true;
      if (bytes[name_end] == ']') in_brackets = false;
      if (!in_brackets && (bytes[name_end] == ':' || bytes[name_end] == '!')) break;
    }
    Value value = value_of(bytes.substr(0, name_end));
    std::size_t at = name_end;
    if (at < bytes.size() && bytes[at] == '!') {
      const char conversion = at + 1 < bytes.size() ? bytes[at + 1] : '\0';
      if (conversion != 's' && conversion != 'r' && conversion != 'a') refuse("unknown conversion of a format");
      value = runtime_.string(conversion == 's' ? shown(runtime_, value) : repr(runtime_, value));
      at += 2;
      if (at < bytes.size() && bytes[at] != ':') refuse("expected ':' after conversion specifier");
    }
    const MarkedText spec = at < bytes.size() ? all(text.part(at + 1, bytes.size()), depth + 1) : MarkedText();
    return formatted(runtime_, value, format_spec(spec.bytes()));
  }

  static bool is_number(std::string_view text) {
    return !text.empty() && text.size() < 18 && text.find_first_not_of("0123456789") == std::string_view::npos;
  }

  Value value_of(const std::string& name) {
    const std::size_t end = std::min(name.find_first_of(".["), name.size());
    if (end == 0 && !name.empty())
      refuse("expected the name or number of a field in front of its attributes, got none");
    Value value = first_value(name.substr(0, end));
    for (std::size_t at = end; at < name.size();) {
      if (name[at] == '.') {
        const std::size_t stop = std::min(name.find_first_of(".[", at + 1), name.size());
        if (stop == at + 1) refuse("empty attribute in format string");
        value = attribute(runtime_, value, name.substr(at + 1, stop - at - 1));
        at = stop;
        continue;
      }
      const std::size_t close = name.find(']', at);
      if (name[at] != '[' || close == std::string::npos) refuse("missing ']' in format string");
      const std::string key = name.substr(at + 1, close - at - 1);
      if (key.empty()) refuse("empty attribute in format string");
      value = item(runtime_, value,
                   is_number(key) ? Value::of(static_cast<std::int64_t>(std::stoll(key))) : runtime_.string(key));
      at = close + 1;
    }
    return value;
  }

  Value first_value(const std::string& name) {
    const bool counts = name.empty();
    if (counts || is_number(name)) {
      if (counts ? numbered_ : next_ > 0) refuse("cannot switch between automatic and manual field numbering");
      numbered_ = numbered_ || !counts;
      const std::size_t at = counts ? next_++ : static_cast<std::size_t>(std::stoll(name));
      if (at >= arguments_.positional.size()) refuse("expected an argument for each field of a format, got fewer");
      return arguments_.positional[at];
    }
    for (const auto& [key, value] : arguments_.named)
      if (key == name) return value;
    refuse("expected an argument ", formats::in_quotes(name), " of a format, got none");
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  std::size_t next_ = 0;
  bool numbered_ = false;
};

}  // namespace

Value percent_formatted(Runtime& runtime, const Value& format, const Value& values) {
  return runtime.string(PercentFormat(runtime, format.text(), values).all());
}

MarkedText brace_formatted(Runtime& runtime, const MarkedText& format, const Arguments& arguments) {
  return BraceFormat(runtime, arguments).all(format, 1);
}

}  // namespace bie::text::chat
