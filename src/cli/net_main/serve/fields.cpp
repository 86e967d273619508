#include "cli/net_main/serve/fields.h"

#include <algorithm>

#include "bie/formats/error.h"
#include "cli/net_main/serve/api_error.h"
#include "formats/json_text.h"

namespace bie::cli {
namespace {

using formats::joined;

constexpr std::size_t most_keys = 512;  // of an object: in their order they are found one after the other

/// The number of keys of the object that has the most.
std::size_t keys_of(const nlohmann::json& value) {
  std::size_t most = value.is_object() ? value.size() : 0;
  if (value.is_structured())
    for (const auto& one : value) most = std::max(most, keys_of(one));
  return most;
}

}  // namespace

void Fields::fail(const std::string& name, const std::string& wanted, const Json& got) {
  throw ApiError(400, joined(name, ": expected ", wanted, ", got ", formats::shown(got)), name);
}

const Json* Fields::find(const char* name) const {
  const auto found = body_.find(name);
  return found == body_.end() || found->is_null() ? nullptr : &*found;
}

bool Fields::flag(const char* name) const {
  const Json* const value = find(name);
  if (value != nullptr && !value->is_boolean()) fail(name, "true or false", *value);
  return value != nullptr && value->get<bool>();
}

double Fields::number(const char* name, double least, double most, double absent) const {
  const Json* const value = find(name);
  if (value == nullptr) return absent;
  const bool is_good = value->is_number() && value->get<double>() >= least && value->get<double>() <= most;
  if (!is_good) fail(name, joined("a number from ", least, " to ", most), *value);
  return value->get<double>();
}

std::int64_t Fields::whole(const char* name, std::int64_t least, std::int64_t most, std::int64_t absent) const {
  const Json* const value = find(name);
  if (value == nullptr) return absent;
  if (!formats::is_whole(*value, least, most)) fail(name, joined("a whole number from ", least, " to ", most), *value);
  return value->get<std::int64_t>();
}

std::string Fields::text(const char* name) const {
  if (find(name) == nullptr) fail(name, "a text", Json());
  return text(name, "");
}

std::string Fields::text(const char* name, const std::string& absent) const {
  const Json* const value = find(name);
  if (value == nullptr) return absent;
  if (!value->is_string()) fail(name, "a text", *value);
  return value->get<std::string>();
}

std::vector<std::int32_t> Fields::tokens(const char* name, std::int64_t vocabulary) const {
  const Json* const list = find(name);
  if (list == nullptr || !list->is_array()) fail(name, "a list of tokens", list == nullptr ? Json() : *list);
  return tokens_of_list(name, *list, vocabulary);
}

std::vector<std::int32_t> tokens_of_list(const char* name, const Json& list, std::int64_t vocabulary) {
  for (const Json& one : list)
    if (!formats::is_whole(one, 0, vocabulary - 1))
      Fields::fail(name, joined("tokens from 0 to ", vocabulary - 1), one);
  return list.get<std::vector<std::int32_t>>();
}

Json body_object(const std::string& body) {
  const nlohmann::json parsed = formats::parse_json(body);
  if (parsed.is_discarded())
    throw ApiError(400, "expected a body of JSON, at most 32 levels deep and with each key once, got other text");
  if (!parsed.is_object()) throw ApiError(400, joined("expected an object as the body, got ", parsed.type_name()));
  if (const std::size_t keys = keys_of(parsed); keys > most_keys)
    throw ApiError(400, joined("expected objects of at most ", most_keys, " keys, got one of ", keys));
  return Json::parse(body);  // in the order of its keys
}

}  // namespace bie::cli
