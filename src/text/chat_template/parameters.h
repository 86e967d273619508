// The arguments of a call by the parameters of what is called.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template/python.h"

namespace bie::text::chat {

class Parameters {
 public:
  /// Refuses arguments that have no parameter, and fewer than `required`. A name that begins with '/' takes arguments
  /// by position alone.
  Parameters(Runtime& runtime, std::string_view function, const Arguments& arguments,
             std::initializer_list<std::string_view> names, std::size_t required = 0);

  bool has(std::size_t i) const { return values_[i].has_value(); }
  /// Whether there is an argument, and it is not None.
  bool is_set(std::size_t i) const { return has(i) && !values_[i]->is(Kind::none); }
  const Value& operator[](std::size_t i) const { return *values_[i]; }
  /// The text of an argument that must be one.
  const MarkedText& text(std::size_t i) const;
  std::int64_t whole(std::size_t i, std::int64_t otherwise) const;
  bool truth(std::size_t i, bool otherwise = false) const;

 private:
  std::string function_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace bie::text::chat
