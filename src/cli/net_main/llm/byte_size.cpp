#include "cli/net_main/llm/byte_size.h"

#include <CLI/Error.hpp>
#include <cstdlib>
#include <map>

#include "bie/formats/error.h"
#include "formats/lower.h"

namespace bie::cli {

std::int64_t bytes_of_size(const char* option, const std::string& size) {
  char* end = nullptr;
  const double number = std::strtod(size.c_str(), &end);
  const std::string unit = formats::lower(end);
  const std::map<std::string, double> units = {{"", 1}, {"b", 1}, {"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}};
  const auto found = units.find(unit);
  const double bytes = found == units.end() ? 0 : number * found->second;
  if (end == size.c_str() || !(bytes >= 1 && bytes < 1e15))
    throw CLI::ValidationError(option, "expected bytes, as 70MB or 1.5GB, got " + formats::in_quotes(size));
  return static_cast<std::int64_t>(bytes);
}

}  // namespace bie::cli
