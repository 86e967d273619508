// Fields of the objects that a tokenizer.json is made of.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "bie/formats/error.h"
#include "formats/json_text.h"

namespace bie::text {

/// The value of a key; null where there is none.
inline const nlohmann::json& field(const nlohmann::json& object, const char* key) {
  static const nlohmann::json nothing;
  if (!object.is_object()) return nothing;
  const auto found = object.find(key);
  return found == object.end() ? nothing : *found;
}

[[noreturn]] inline void refuse_field(const nlohmann::json& object, const char* key, const char* wanted) {
  throw formats::Error(
      formats::joined(formats::in_quotes(key), ": expected ", wanted, ", got ", formats::shown(field(object, key))));
}

/// A bool; `otherwise` where the key is not there or null.
inline bool flag(const nlohmann::json& object, const char* key, bool otherwise) {
  const nlohmann::json& value = field(object, key);
  if (value.is_null()) return otherwise;
  if (!value.is_boolean()) refuse_field(object, key, "true or false");
  return value.get<bool>();
}

inline std::string string_field(const nlohmann::json& object, const char* key) {
  const nlohmann::json& value = field(object, key);
  if (!value.is_string()) refuse_field(object, key, "a string");
  return value.get<std::string>();
}

/// The "type" of a part; empty where it has none.
inline std::string type_of(const nlohmann::json& part) {
  const nlohmann::json& type = field(part, "type");
  return type.is_string() ? type.get<std::string>() : std::string();
}

}  // namespace bie::text
