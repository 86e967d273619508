#include "cli/support/run_files.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>

#include "bie/formats/mapped_file.h"
#include "bie/train/run_folder.h"
#include "data/value_errors.h"
#include "formats/json_text.h"

namespace bie::cli {
namespace {

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

std::string text_of(const std::string& path) {
  const auto file = data::with_value_errors([&] { return std::make_unique<formats::MappedFile>("run file", path); });
  return {reinterpret_cast<const char*>(file->data()), static_cast<std::size_t>(file->size())};
}

nlohmann::json json_of(const std::string& path) {
  nlohmann::json json = formats::parse_json(text_of(path));
  TORCH_CHECK_VALUE(!json.is_discarded(), "run file ", path, ": is no JSON, or is cut off");
  return json;
}

/// The entry of that name, of a type that `is` tells; a ValueError that names file and entry.
template <class Is>
const nlohmann::json& entry(const nlohmann::json& object, const std::string& path, const char* name, const char* wanted,
                            const Is& is) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  TORCH_CHECK_VALUE(object.is_object() && found != object.end() && is(*found), "run file ", path, ": its entry '", name,
                    "': expected ", wanted, ", got ", found == object.end() ? "none" : formats::shown(*found));
  return *found;
}

bool is_text(const nlohmann::json& value) { return value.is_string(); }
bool is_object(const nlohmann::json& value) { return value.is_object(); }
bool is_list(const nlohmann::json& value) { return value.is_array(); }
bool is_number(const nlohmann::json& value) { return value.is_number(); }
bool is_count(const nlohmann::json& value) { return formats::is_whole(value, 0, most); }

std::int64_t count_of(const nlohmann::json& object, const std::string& path, const char* name) {
  return entry(object, path, name, "a whole number", is_count).get<std::int64_t>();
}

/// Null is not known.
double number_of(const nlohmann::json& object, const std::string& path, const char* name) {
  const auto is = [](const nlohmann::json& value) { return value.is_number() || value.is_null(); };
  const nlohmann::json& value = entry(object, path, name, "a number", is);
  return value.is_null() ? report::unknown : value.get<double>();
}

report::Confusion confusion_of(const nlohmann::json& file, const std::string& path) {
  report::Confusion confusion;
  for (const nlohmann::json& name : entry(file, path, "classes", "a list", is_list)) {
    TORCH_CHECK_VALUE(name.is_string(), "run file ", path, ": a class: expected a text, got ", formats::shown(name));
    confusion.classes.push_back(name.get<std::string>());
  }
  const nlohmann::json& rows = entry(file, path, "confusion", "a list", is_list);
  TORCH_CHECK_VALUE(rows.empty() || rows.size() == confusion.classes.size(), "run file ", path, ": its confusion has ",
                    rows.size(), " rows, there are ", confusion.classes.size(), " classes");
  for (const nlohmann::json& row : rows) {
    TORCH_CHECK_VALUE(row.is_array() && row.size() == rows.size() && std::all_of(row.begin(), row.end(), is_count),
                      "run file ", path, ": a row of its confusion is not ", rows.size(), " counts");
    for (const nlohmann::json& value : row) confusion.counts.push_back(value.get<std::uint64_t>());
  }
  return confusion;
}

}  // namespace

std::string model_file(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return path;
  std::string model = train::RunFolder(path).model();
  TORCH_CHECK_VALUE(std::filesystem::exists(model), path, ": the folder holds no model.safetensors of a run");
  return model;
}

Json config_of(const std::string& path) {
  const nlohmann::json config = json_of(path);
  for (const char* name : {"command", "started"}) entry(config, path, name, "a text", is_text);
  for (const char* name : {"data", "model", "recipe", "program"}) entry(config, path, name, "an object", is_object);
  return Json::parse(config.dump());
}

std::string spec_of(const Json& config, const std::string& path) {
  const auto found = config["data"].find("spec");
  TORCH_CHECK_VALUE(found != config["data"].end() && found->is_string(), "run file ", path,
                    " does not say which data set it is of: the run is of an older build, or the name is no UTF-8; "
                    "--data says it");
  return found->get<std::string>();
}

std::vector<train::Epoch> history_of(const std::string& path) {
  std::string lines = text_of(path);
  while (!lines.empty() && lines.back() == '\n') lines.pop_back();
  std::replace(lines.begin(), lines.end(), '\n', ',');
  TORCH_CHECK_VALUE(!formats::parse_json("[" + lines + "]").is_discarded(), "run file ", path,
                    ": its lines are no JSON");
  return train::parse_history("[" + lines + "]");
}

std::vector<report::Rank> ranks_of(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  const nlohmann::json file = json_of(path);
  std::vector<report::Rank> ranks;
  for (const nlohmann::json& rank : entry(file, path, "ranks", "a list", is_list))
    ranks.push_back({count_of(rank, path, "rank"), entry(rank, path, "host", "a text", is_text).get<std::string>(),
                     entry(rank, path, "device", "a text", is_text).get<std::string>(), count_of(rank, path, "images"),
                     entry(rank, path, "seconds", "a number", is_number).get<double>()});
  return ranks;
}

RunResults results_of(const std::string& path) {
  const nlohmann::json file = json_of(path);
  return {entry(file, path, "metric", "a text", is_text).get<std::string>(),
          number_of(file, path, "test_score"),
          number_of(file, path, "test_loss"),
          count_of(file, path, "test_samples"),
          number_of(file, path, "seconds"),
          count_of(file, path, "epochs"),
          count_of(file, path, "weights"),
          count_of(file, path, "model_bytes"),
          confusion_of(file, path)};
}

}  // namespace bie::cli
