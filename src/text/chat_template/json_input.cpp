#include "text/chat_template/json_input.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

namespace bie::text::chat {
namespace {

constexpr std::array<std::string_view, 7> roles = {"system", "developer", "user", "assistant",
                                                   "tool",   "function",  "model"};

/// A list or an object that is not closed yet.
struct Open {
  bool is_dict;
  std::vector<Value> values;
  Dict::Entries entries;
  std::string key;
};

/// Events of the parser, which knows no recursion.
class Builder {
 public:
  Builder(Runtime& runtime, std::string_view what, bool is_messages)
      : runtime_(runtime), what_(what), is_messages_(is_messages) {}

  Value result() { return std::move(*root_); }

  bool null() { return add(Value::none()); }
  bool boolean(bool value) { return add(Value::of(value)); }
  bool number_integer(std::int64_t value) { return add(Value::of(value)); }
  bool number_unsigned(std::uint64_t value) {
    if (value > static_cast<std::uint64_t>(INT64_MAX)) fail_size();
    return add(Value::of(static_cast<std::int64_t>(value)));
  }
  bool number_float(double value, const std::string& text) {
    if (text.find_first_of(".eE") == std::string::npos) fail_size();
    return add(Value::of(value));
  }
  bool string(std::string& text) {
    const bool is_role = is_messages_ && open_.size() == 2 && open_[1].is_dict && open_[1].key == "role" &&
                         std::find(roles.begin(), roles.end(), text) != roles.end();
    return add(runtime_.string(std::move(text), is_role));
  }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(std::size_t) { return start(true); }
  bool start_array(std::size_t) { return start(false); }
  bool key(std::string& text) {
    open_.back().key = std::move(text);
    return true;
  }
  bool end_object() { return end(); }
  bool end_array() { return end(); }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::json::exception&) {
    refuse("expected ", what_, " as JSON, got another text from byte ", at, " on");
  }

 private:
  [[noreturn]] void fail_size() const { refuse("expected integers of 64 bits in ", what_, ", got a larger one"); }

  bool start(bool is_dict) {
    if (open_.size() >= static_cast<std::size_t>(deepest_value))
      refuse("expected at most ", deepest_value, " levels in ", what_, ", got more");
    open_.push_back({is_dict, {}, {}, {}});
    return true;
  }

  bool end() {
    Open closed = std::move(open_.back());
    open_.pop_back();
    if (is_messages_ && closed.is_dict && open_.size() == 1) closed.entries = message(closed.entries);
    return add(closed.is_dict ? runtime_.dict(closed.entries) : runtime_.list(std::move(closed.values)));
  }

  /// A message as transformers hands it on: without members that are null, and the reasoning under two more names.
  Dict::Entries message(const Dict::Entries& given) {
    Dict::Entries entries;
    const Value* reasoning = nullptr;
    for (const std::string_view name : {"reasoning", "thinking", "reasoning_content"})
      for (const auto& [key, value] : given)
        if (key.bytes() == name && !value.is(Kind::none)) reasoning = &value;
    if (reasoning != nullptr) entries.emplace_back(runtime_.string("thinking"), *reasoning);
    for (const auto& entry : given)
      if (!entry.second.is(Kind::none)) entries.push_back(entry);
    if (reasoning != nullptr) entries.emplace_back(runtime_.string("reasoning_content"), *reasoning);
    return entries;
  }

  bool add(Value value) {
    runtime_.meter.step();
    if (open_.empty())
      root_ = std::move(value);
    else if (open_.back().is_dict)
      open_.back().entries.emplace_back(runtime_.string(open_.back().key), std::move(value));
    else
      open_.back().values.push_back(std::move(value));
    return true;
  }

  Runtime& runtime_;
  const std::string_view what_;
  const bool is_messages_;
  std::vector<Open> open_;
  std::optional<Value> root_;
};

}  // namespace

Value from_json(Runtime& runtime, const std::string& text, std::string_view what, bool is_messages) {
  if (text.find('\0') != std::string::npos) refuse("expected ", what, " as JSON, got a zero byte");
  Builder builder(runtime, what, is_messages);
  if (!nlohmann::json::sax_parse(text, &builder)) refuse("expected ", what, " as JSON, got another text");
  return builder.result();
}

}  // namespace bie::text::chat
