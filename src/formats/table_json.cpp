// A table's form as JSON text. Forms of version 2 name their columns "inputs": older builds, which would leave the
// scales out, then find no columns and refuse the file.
#include <cmath>
#include <optional>
#include <string_view>

#include "bie/formats/error.h"
#include "bie/formats/table.h"
#include "formats/json_text.h"

namespace bie::formats {
namespace {

using Json = nlohmann::json;

[[noreturn]] void fail(const char* name, const char* wanted, const std::string& got = "another value") {
  throw Error(joined("table: ", name, ": expected ", wanted, ", got ", got));
}

/// The entry of that name, for use in a sentence.
std::string shown_at(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found == json.end() ? "none" : shown(*found);
}

std::string text_at(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_string()) fail(name, "a string", shown_at(json, name));
  return found->get<std::string>();
}

bool flag_at(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_boolean()) fail(name, "true or false", shown_at(json, name));
  return found->get<bool>();
}

double number_at(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number() || !std::isfinite(found->get<double>()))
    fail(name, "a number", shown_at(json, name));
  return found->get<double>();
}

std::int64_t whole_at(const Json& json, const char* name, std::int64_t least, std::int64_t most) {
  const auto found = json.find(name);
  if (found == json.end() || !is_whole(*found, least, most)) fail(name, "a whole number", shown_at(json, name));
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

std::vector<double> numbers_at(const Json& json, const char* name) {
  const auto found = json.find(name);
  std::vector<double> numbers;
  bool good = found != json.end() && found->is_array();
  if (good)
    for (const Json& number : *found) {
      good = good && number.is_number() && std::isfinite(number.get<double>());
      if (good) numbers.push_back(number.get<double>());
    }
  if (!good) fail(name, "an array of numbers");
  return numbers;
}

std::optional<Curve> curve_at(const Json& json) {
  if (!json.contains("curve")) return std::nullopt;
  const std::vector<double> numbers = numbers_at(json, "curve");
  if (numbers.size() != 2 || numbers[1] <= 0) fail("curve", "a number and a positive one", "others");
  return Curve{numbers[0], numbers[1]};
}

char character_at(const Json& json, const char* name, std::string_view allowed) {
  const std::string text = text_at(json, name);
  if (text.size() != 1 || allowed.find(text[0]) == std::string_view::npos) fail(name, "one character", in_quotes(text));
  return text[0];
}

Json column_json(const TableColumn& c) {
  Json column = {{"name", c.name}, {"mean", c.mean}};
  if (!c.values.empty()) column["values"] = c.values;
  if (c.others) column["others"] = true;
  if (c.marked) column["marked"] = true;
  if (c.curve) column["curve"] = {c.curve->center, c.curve->width};
  if (!c.centers.empty()) column.update({{"centers", c.centers}, {"scales", c.scales}});
  return column;
}

TableColumn column_of(const Json& json, int version) {
  TableColumn c;
  c.name = text_at(json, "name");
  c.mean = number_at(json, "mean");
  if (json.contains("values")) c.values = texts_at(json, "values");
  if (json.contains("marked")) c.marked = flag_at(json, "marked");
  if (version < 2) return c;
  if (json.contains("others")) c.others = flag_at(json, "others");
  c.curve = curve_at(json);
  if (!json.contains("centers")) return c;
  c.centers = numbers_at(json, "centers");
  c.scales = numbers_at(json, "scales");
  const auto features = static_cast<std::size_t>(c.features());
  if (c.centers.size() != features || c.scales.size() != features)
    fail("scales", "a number for each input", "another count");
  return c;
}

/// Fields that version 2 of the form adds to version 1.
Json additions(const TableForm& form) {
  Json json = {{"decimals", form.decimals},
               {"decimal", std::string(1, form.numbers.decimal)},
               {"split", {{"kind", name(form.split.kind)}, {"seed", form.split.seed}, {"column", form.split.column}}}};
  if (form.numbers.thousands != 0) json["thousands"] = std::string(1, form.numbers.thousands);
  if (form.numbers.missing) json["missing_words"] = *form.numbers.missing;
  if (!form.places.empty()) json.update({{"places", form.places}, {"width", form.width}});
  if (form.curve)
    json.update({{"curve", {form.curve->center, form.curve->width}}, {"least", form.least}, {"most", form.most}});
  return json;
}

void take_places(const Json& json, TableForm* form) {
  if (!json.contains("places")) return;
  form->width = whole_at(json, "width", 2, std::int64_t{1} << 17);
  for (const double place : numbers_at(json, "places")) {
    const bool good = place == std::floor(place) && place >= 0 && place < static_cast<double>(form->width) &&
                      place != static_cast<double>(form->label_place);
    if (!good || form->named) fail("places", "places of columns of a table without names", joined(place));
    form->places.push_back(static_cast<std::int64_t>(place));
  }
  if (form->places.size() != form->columns.size() || form->label_place < 0 || form->label_place >= form->width)
    fail("places", "a place for each input", "others");
}

void take_additions(const Json& json, TableForm* form) {
  form->decimals = static_cast<int>(whole_at(json, "decimals", 0, 1 << 16));
  form->numbers.decimal = character_at(json, "decimal", ".,");
  if (json.contains("thousands")) form->numbers.thousands = character_at(json, "thousands", ".,' _");
  if (json.contains("missing_words")) form->numbers.missing = texts_at(json, "missing_words");
  take_places(json, form);
  if (form->places.empty() && form->label_place > static_cast<std::int64_t>(form->columns.size()))
    fail("label_place", "a place of a column", joined(form->label_place));
  form->curve = curve_at(json);
  if (form->curve) {
    form->least = number_at(json, "least");
    form->most = number_at(json, "most");
    if (form->least > form->most) fail("least", "a number below most", joined(form->least));
  }
  const auto split = json.find("split");
  if (split == json.end() || !split->is_object()) fail("split", "an object", shown_at(json, "split"));
  const std::string word = text_at(*split, "kind");
  for (const SplitKind k : {SplitKind::order, SplitKind::shuffle, SplitKind::group, SplitKind::time})
    if (word == name(k)) form->split.kind = k;
  if (word != name(form->split.kind)) fail("kind", "order, shuffle, group or time", in_quotes(word));
  const auto seed = split->find("seed");
  if (seed == split->end() || !seed->is_number_unsigned()) fail("seed", "a whole number", shown_at(*split, "seed"));
  form->split.seed = seed->get<std::uint64_t>();
  form->split.column = text_at(*split, "column");
}

}  // namespace

std::string table_json(const TableForm& form) {
  Json columns = Json::array();
  for (const TableColumn& column : form.columns) columns.push_back(column_json(column));
  Json json = {{form.version < 2 ? "columns" : "inputs", columns},
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
               {"checksum", form.checksum}};
  if (form.version >= 2) json.update(additions(form));
  return json.dump();
}

TableForm parse_table(const std::string& text) {
  const Json json = parse_json(text);
  if (!json.is_object()) throw Error("table: expected an object, got another value");
  TableForm form;
  form.version = json.contains("columns") ? 1 : 2;
  const char* const inputs = form.version < 2 ? "columns" : "inputs";
  const auto columns = json.find(inputs);
  if (columns == json.end() || !columns->is_array() || columns->empty()) fail(inputs, "an array of objects");
  for (const Json& column : *columns) {
    if (!column.is_object()) fail(inputs, "an array of objects", "one with " + shown(column));
    form.columns.push_back(column_of(column, form.version));
  }
  form.named = flag_at(json, "named");
  form.label = text_at(json, "label");
  form.label_place =
      whole_at(json, "label_place", -1,
               form.version < 2 ? static_cast<std::int64_t>(form.columns.size()) : std::int64_t{1} << 17);
  form.id = text_at(json, "id");
  form.left_out = texts_at(json, "left_out");
  const std::string missing = text_at(json, "missing");
  for (const Missing m : {Missing::refuse, Missing::mean, Missing::drop})
    if (missing == name(m)) form.missing = m;
  if (missing != name(form.missing)) fail("missing", "refuse, mean or drop", in_quotes(missing));
  form.regression = flag_at(json, "regression");
  form.mean = number_at(json, "mean");
  form.scale = number_at(json, "scale");
  if (form.scale <= 0) fail("scale", "a positive number", joined(form.scale));
  form.test_share = number_at(json, "test_share");
  form.checksum = static_cast<std::uint32_t>(whole_at(json, "checksum", 0, 0xffffffff));
  if (form.version >= 2) take_additions(json, &form);
  return form;
}

}  // namespace bie::formats
