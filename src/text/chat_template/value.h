// Values of a template: those of Python that JSON and templates make.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat_template/marked_text.h"
#include "text/chat_template/meter.h"

namespace bie::text::chat {

class Runtime;

/// What the heap holds of a value.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

enum class Kind : std::uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  string,
  sequence,
  dict,
  names,
  loop,
  function
};

struct String;
struct Sequence;
struct Dict;
struct Names;
struct Loop;
struct Function;

/// Cheap to copy. Containers never change, but for namespaces, loops, and how far an iterator has been read.
class Value {
 public:
  Value() = default;
  static Value none(bool mark = false) { return Value(Kind::none, mark); }
  static Value of(bool value, bool mark = false);
  static Value of(std::int64_t value, bool mark = false);
  static Value of(double value, bool mark = false);
  static Value object(Kind kind, std::shared_ptr<const Object> object) { return {kind, std::move(object)}; }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_whole() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  bool is_number() const { return is_whole() || kind_ == Kind::real; }

  bool boolean() const { return whole_ != 0; }
  std::int64_t whole() const { return whole_; }
  double real() const { return kind_ == Kind::real ? real_ : static_cast<double>(whole_); }
  const MarkedText& text() const;
  const std::string& bytes() const { return text().bytes(); }
  const Sequence& sequence() const;
  const Dict& dict() const;
  Names& names() const;
  Loop& loop() const;
  const Function& function() const;
  /// Why an undefined value is not defined.
  std::string why() const;

  /// Whether the template wrote a scalar.
  bool mark() const { return mark_; }
  /// Whether a string is HTML that `+` does not escape.
  bool is_markup() const { return markup_; }
  Value as_markup() const;
  Value as_plain() const;
  /// Whether both are one object.
  bool is_same(const Value& other) const;
  int depth() const;
  /// Of the object, by which values without an order of their own are told apart.
  const void* address() const { return object_.get(); }

 private:
  Value(Kind kind, bool mark) : kind_(kind), mark_(mark) {}
  Value(Kind kind, std::shared_ptr<const Object> object) : kind_(kind), object_(std::move(object)) {}

  Kind kind_ = Kind::undefined;
  bool mark_ = false, markup_ = false;
  union {
    std::int64_t whole_ = 0;
    double real_;
  };
  std::shared_ptr<const Object> object_;
};

struct String : Object {
  explicit String(MarkedText t) : text(std::move(t)) {}
  String(MarkedText t, Meter& meter) : text(std::move(t)), charge(meter, text.size() + sizeof(String)) {}
  const MarkedText text;
  const Charge charge;
};

/// How Python calls a sequence.
enum class Flavour : std::uint8_t { list, tuple, range, keys, values, items, iterator };

struct Sequence : Object {
  Sequence(Flavour f, std::vector<Value> v, Meter& meter);
  const Flavour flavour;
  const std::vector<Value> values;
  std::string shown;             ///< a range as Python writes it
  bool is_group = false;         ///< a pair of groupby, whose values have names
  mutable std::size_t next = 0;  ///< the first value that an iterator has not given
  const int depth;
  const Charge charge;
};

/// Orders keys so that those that Python takes for equal are equal.
struct KeyLess {
  bool operator()(const Value& a, const Value& b) const;
};

/// Values by key, in the order in which keys came.
struct Dict : Object {
  using Entries = std::vector<std::pair<Value, Value>>;
  Dict(const Entries& all, Meter& meter);
  Entries entries;
  int depth = 1;
  /// Null where there is none; refuses keys that have no hash.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;

 private:
  std::map<Value, std::size_t, KeyLess> places_;
  const Charge charge_;
};

/// `namespace()`, whose attributes templates set.
struct Names : Object {
  explicit Names(Meter& meter) : charge(meter, sizeof(Names)) {}
  std::vector<std::pair<std::string, Value>> all;
  const Charge charge;
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// Whatever can be called: macros, methods and the functions of the environment.
struct Function : Object {
  using Body = std::function<Value(Runtime&, Arguments&)>;
  Function(std::string n, Body b) : name(std::move(n)), body(std::move(b)) {}
  const std::string name;
  const Body body;
  std::vector<std::pair<std::string, Value>> attributes;
  std::string shown;  ///< as it is printed
};

/// `loop` of a for statement.
struct Loop : Object {
  std::vector<Value> items;
  std::size_t at = 0;
  int depth = 0;
  std::vector<Value> last_changed;
  bool has_changed = false;
  std::function<Value(Runtime&, const Value&)> recurse;
};

/// Nothing deeper is made; the destructors, prints and comparisons of values are recursive.
constexpr int deepest_value = 200;

/// How Python calls the type of a value.
std::string_view type_name(const Value& value);
bool is_hashable(const Value& value);

}  // namespace bie::text::chat
