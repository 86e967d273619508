#include "cli/support/result.h"

#include <cstdio>

namespace bie::cli {
namespace {

// Raised when a field changes its meaning or goes; a field that is added leaves it alone.
constexpr int schema = 1;

}  // namespace

std::string json_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

void print_json(const std::string& command, const Json& fields) {
  Json document = {{"schema", schema}, {"command", command}};
  document.update(fields);
  std::printf("%s\n", json_text(document).c_str());
}

void print_json_list(const std::string& command, const Json& list) {
  Json all = Json::array();
  for (const Json& fields : list) {
    all.push_back({{"schema", schema}, {"command", command}});
    all.back().update(fields);
  }
  std::printf("%s\n", json_text(all).c_str());
}

Json exact_text(const std::string& text) {
  try {
    return Json::parse(Json(text).dump());
  } catch (const Json::exception&) {
    return {};
  }
}

}  // namespace bie::cli
