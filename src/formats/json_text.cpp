#include "formats/json_text.h"

#include <limits>
#include <set>
#include <vector>

#include "bie/formats/error.h"

namespace bie::formats {

nlohmann::json parse_json(const std::string& text) {
  using Json = nlohmann::json;
  using Event = Json::parse_event_t;
  constexpr int deepest = 32;
  if (text.find('\0') != std::string::npos) return Json::value_t::discarded;
  bool good = true;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  Json value = Json::parse(
      text,
      [&](int depth, Event event, Json& part) {
        good = good && depth <= deepest;
        if (!good) return false;
        if (event == Event::object_start) keys.emplace_back();
        if (event == Event::object_end) keys.pop_back();
        if (event == Event::key) good = keys.back().insert(part.get<std::string>()).second;
        return good;
      },
      /*allow_exceptions=*/false);
  return good ? value : Json(Json::value_t::discarded);
}

bool is_whole(const nlohmann::json& value, std::int64_t least, std::int64_t most) {
  if (!value.is_number_integer()) return false;
  constexpr auto beyond = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > beyond) return false;
  const auto number = value.get<std::int64_t>();
  return number >= least && number <= most;
}

bool is_utf8(const std::string& text) {
  try {
    nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
  return true;
}

std::string shown(const nlohmann::json& value) {
  if (value.is_structured()) return std::string("an ") + value.type_name();
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
  return value.dump();
}

}  // namespace bie::formats
