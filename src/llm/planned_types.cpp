#include <string>
#include <utility>
#include <vector>

#include "bie/formats/error.h"
#include "bie/formats/written_types.h"
#include "bie/llm/quantize.h"
#include "formats/json_text.h"
#include "formats/lower.h"

namespace bie::llm {

using formats::Error;

std::vector<std::pair<std::string, const formats::GgufType*>> planned_types(const std::string& json) {
  const nlohmann::json whole = formats::parse_json(json);
  const auto list = whole.is_object() ? whole.find("plan") : whole.end();
  if (list == whole.end() || !list->is_array())
    throw Error("expected an object with a list \"plan\", as bie quantize -o PLAN.json writes it");
  std::vector<std::pair<std::string, const formats::GgufType*>> types;
  for (const nlohmann::json& entry : *list) {
    const bool is_entry = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                          entry.contains("type") && entry["type"].is_string();
    if (!is_entry)
      throw Error(formats::joined("expected a \"name\" and a \"type\" in entry ", types.size(), ", got ",
                                  formats::shown(entry)));
    const std::string name = entry["name"], type = formats::lower(entry["type"].get<std::string>());
    if (formats::written_type(type) == nullptr)
      throw Error("expected a type among " + formats::written_type_names() + ", got " + formats::in_quotes(type));
    if (name.find_first_of("*?") != std::string::npos)
      throw Error("expected the whole name of a matrix, got " + formats::in_quotes(name));
    types.emplace_back(name, formats::written_type(type));
  }
  return types;
}

}  // namespace bie::llm
