// A table's form as JSON text.
#include <cmath>

#include "bie/formats/error.h"
#include "bie/formats/table.h"
#include "formats/json_text.h"

namespace bie::formats {
namespace {

using Json = nlohmann::json;

[[noreturn]] void fail(const char* name, const char* wanted) {
  throw Error(joined("table: ", name, " is wanted as ", wanted));
}

std::string text_at(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_string()) fail(name, "a string");
  return found->get<std::string>();
}

bool flag_at(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_boolean()) fail(name, "true or false");
  return found->get<bool>();
}

double number_at(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number() || !std::isfinite(found->get<double>())) fail(name, "a number");
  return found->get<double>();
}

std::int64_t whole_at(const Json& json, const char* name, std::int64_t least, std::int64_t most) {
  const auto found = json.find(name);
  if (found == json.end() || !is_whole(*found, least, most)) fail(name, "a whole number");
  return found->get<std::int64_t>();
}

std::vector<std::string> texts_at(const Json& json, const char* name) {
  const auto found = json.find(name);
  std::vector<std::string> texts;
  bool good = found != json.end() && found->is_array();
  if (good)
    for (const Json& text : *found) {
      good = good && text.is_string();
      if (good) texts.push_back(text.get<std::string>());
    }
  if (!good) fail(name, "an array of strings");
  return texts;
}

}  // namespace

std::string table_json(const TableForm& form) {
  Json columns = Json::array();
  for (const TableColumn& c : form.columns) {
    Json column = {{"name", c.name}, {"mean", c.mean}};
    if (!c.values.empty()) column["values"] = c.values;
    if (c.marked) column["marked"] = true;
    columns.push_back(column);
  }
  return Json{{"columns", columns},
              {"named", form.named},
              {"label", form.label},
              {"label_place", form.label_place},
              {"id", form.id},
              {"left_out", form.left_out},
              {"missing", name(form.missing)},
              {"regression", form.regression},
              {"mean", form.mean},
              {"scale", form.scale},
              {"test_share", form.test_share},
              {"checksum", form.checksum}}
      .dump();
}

TableForm parse_table(const std::string& text) {
  const Json json = parse_json(text);
  if (!json.is_object()) throw Error("table: an object is wanted");
  TableForm form;
  const auto columns = json.find("columns");
  if (columns == json.end() || !columns->is_array() || columns->empty()) fail("columns", "an array of objects");
  for (const Json& column : *columns) {
    if (!column.is_object()) fail("columns", "an array of objects");
    TableColumn& c = form.columns.emplace_back();
    c.name = text_at(column, "name");
    c.mean = number_at(column, "mean");
    if (column.contains("values")) c.values = texts_at(column, "values");
    if (column.contains("marked")) c.marked = flag_at(column, "marked");
  }
  form.named = flag_at(json, "named");
  form.label = text_at(json, "label");
  form.label_place = whole_at(json, "label_place", -1, static_cast<std::int64_t>(form.columns.size()));
  form.id = text_at(json, "id");
  form.left_out = texts_at(json, "left_out");
  const std::string missing = text_at(json, "missing");
  for (const Missing m : {Missing::refuse, Missing::mean, Missing::drop})
    if (missing == name(m)) form.missing = m;
  if (missing != name(form.missing)) fail("missing", "refuse, mean or drop");
  form.regression = flag_at(json, "regression");
  form.mean = number_at(json, "mean");
  form.scale = number_at(json, "scale");
  if (form.scale <= 0) fail("scale", "a positive number");
  form.test_share = number_at(json, "test_share");
  form.checksum = static_cast<std::uint32_t>(whole_at(json, "checksum", 0, 0xffffffff));
  return form;
}

}  // namespace bie::formats
