#include "formats/json_text.h"

#include <limits>
#include <utility>
#include <vector>

#include "bie/formats/error.h"

namespace bie::formats {
namespace {

using Json = nlohmann::json;

/// Builds a value of the events of the library's parser. The library's own builder that can refuse events walks a list
/// again for each object in it.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(Json* result) : result_(*result) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(number_integer_t v) override { return put(v); }
  bool number_unsigned(number_unsigned_t v) override { return put(v); }
  bool number_float(number_float_t v, const string_t&) override { return put(v); }
  bool string(string_t& v) override { return put(std::move(v)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& v) override {
    const auto [place, is_new] = open_.back()->get_ref<Json::object_t&>().emplace(std::move(v), nullptr);
    place_ = &place->second;
    return is_new && open_.size() <= deepest;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  static constexpr std::size_t deepest = 32;

  /// Null beyond the depth that is read.
  Json* placed(Json&& v) {
    if (open_.size() > deepest) return nullptr;
    if (open_.empty()) return &(result_ = std::move(v));
    if (open_.back()->is_object()) return &(*place_ = std::move(v));
    auto& list = open_.back()->get_ref<Json::array_t&>();
    list.push_back(std::move(v));
    return &list.back();
  }
  bool put(Json&& v) { return placed(std::move(v)) != nullptr; }
  bool open(Json&& v) {
    Json* const value = placed(std::move(v));
    open_.push_back(value);
    return value != nullptr;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json& result_;
  std::vector<Json*> open_;  ///< what is not closed; a list's items stay where they are while one of them is open
  Json* place_ = nullptr;    ///< of the member whose key came last
};

}  // namespace

nlohmann::json parse_json(const std::string& text) {
  if (text.find('\0') != std::string::npos) return Json::value_t::discarded;
  Json value;
  Builder builder(&value);
  return Json::sax_parse(text, &builder) ? value : Json(Json::value_t::discarded);
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
