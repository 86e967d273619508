#include "bie/formats/class_names.h"

#include <algorithm>

#include "bie/formats/error.h"
#include "formats/json_text.h"

namespace bie::formats {

std::map<std::string, std::string> class_name_entries(const std::vector<std::string>& names) {
  std::string lines;
  bool plain = true;
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::string name = names[i];
    plain = plain && !name.empty() && name.find('\n') == std::string::npos;
    std::replace(name.begin(), name.end(), '\n', ' ');
    lines.append(i == 0 ? "" : "\n").append(name);
  }
  std::map<std::string, std::string> entries{{"classes", lines}};
  if (!plain) entries["class_names"] = nlohmann::json(names).dump();
  return entries;
}

std::vector<std::string> class_names_of(const std::string& classes, const std::string& class_names) {
  std::vector<std::string> names;
  if (!class_names.empty()) {
    const nlohmann::json list = parse_json(class_names);
    bool good = list.is_array();
    for (std::size_t i = 0; good && i < list.size(); ++i) {
      good = list[i].is_string();
      if (good) names.push_back(list[i].get<std::string>());
    }
    if (!good) throw Error("class_names: expected a list of names, got " + shown(list));
    return names;
  }
  for (std::size_t begin = 0; begin < classes.size();) {
    const std::size_t end = std::min(classes.find('\n', begin), classes.size());
    names.push_back(classes.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

}  // namespace bie::formats
