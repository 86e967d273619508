#include "text/chat_template/parameters.h"

#include <algorithm>

namespace bie::text::chat {

Parameters::Parameters(Runtime& runtime, std::string_view function, const Arguments& arguments,
                       std::initializer_list<std::string_view> names, std::size_t required)
    : function_(function), values_(names.size()) {
  runtime.meter.step();
  if (arguments.positional.size() > names.size())
    refuse(function, "() takes at most ", names.size(), " arguments, got ", arguments.positional.size());
  std::copy(arguments.positional.begin(), arguments.positional.end(), values_.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto* const found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) refuse(function, "() got an unexpected argument ", formats::in_quotes(name));
    auto& place = values_[static_cast<std::size_t>(found - names.begin())];
    if (place) refuse(function, "() got several values of ", formats::in_quotes(name));
    place = value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (!values_[i]) refuse(function, "() expects at least ", required, " arguments, got fewer");
}

const MarkedText& Parameters::text(std::size_t i) const {
  const Value& value = *values_[i];
  if (value.is(Kind::undefined)) refuse(value.why());
  if (!value.is(Kind::string)) refuse(function_, "() expects a string, got ", type_name(value));
  return value.text();
}

std::int64_t Parameters::whole(std::size_t i, std::int64_t otherwise) const {
  if (!has(i)) return otherwise;
  if (values_[i]->is(Kind::undefined)) refuse(values_[i]->why());
  if (!values_[i]->is_whole()) refuse(function_, "() expects an integer, got ", type_name(*values_[i]));
  return values_[i]->whole();
}

bool Parameters::truth(std::size_t i, bool otherwise) const { return has(i) ? chat::truth(*values_[i]) : otherwise; }

}  // namespace bie::text::chat
