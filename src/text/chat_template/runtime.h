// What evaluating needs besides the template: limits, and the values that are made.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/chat_template/value.h"

namespace bie::text::chat {

/// Of one rendering.
class Runtime {
 public:
  Runtime(const ChatLimits& limits, const std::optional<std::tm>& time) : meter(limits), now(time) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime();

  Value string(MarkedText text);
  Value string(std::string text, bool mark = false) { return string(MarkedText(std::move(text), mark)); }
  Value sequence(Flavour flavour, std::vector<Value> values);
  Value list(std::vector<Value> values) { return sequence(Flavour::list, std::move(values)); }
  Value tuple(std::vector<Value> values) { return sequence(Flavour::tuple, std::move(values)); }
  Value dict(const Dict::Entries& entries);
  Value names();
  Value undefined(std::string why);
  static Value function(std::string name, Function::Body body);
  Value call(const Value& callee, Arguments& arguments);

  Meter meter;
  const std::optional<std::tm> now;
  int depth = 0;

 private:
  std::vector<std::shared_ptr<Names>> all_names_;  // may hold themselves
};

/// One level of recursion.
class Level {
 public:
  explicit Level(Runtime& runtime) : runtime_(runtime) {
    if (runtime_.depth >= deepest) refuse("expected nesting of at most ", deepest, " levels, got more");
    ++runtime_.depth;
    runtime_.meter.step();
  }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  ~Level() { --runtime_.depth; }

 private:
  static constexpr int deepest = 1000;
  Runtime& runtime_;
};

}  // namespace bie::text::chat
