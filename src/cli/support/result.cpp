#include "cli/support/result.h"

#include <cstdio>

namespace bie::cli {
namespace {

// Raised when a field changes its meaning or goes; a field that is added leaves it alone.
constexpr int schema = 1;

}  // namespace

void print_json(const std::string& command, const Json& fields) {
  Json document = {{"schema", schema}, {"command", command}};
  document.update(fields);
  std::printf("%s\n", document.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

void print_json_list(const std::string& command, const Json& list) {
  Json all = Json::array();
  for (const Json& fields : list) {
    all.push_back({{"schema", schema}, {"command", command}});
    all.back().update(fields);
  }
  std::printf("%s\n", all.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

Json exact_text(const std::string& text) {
  try {
    return Json::parse(Json(text).dump());
  } catch (const Json::exception&) {
    return {};
  }
}

}  // namespace bie::cli
