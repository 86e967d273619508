// A model's configuration as JSON text.
#include "bie/models/model_config.h"

#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "bie/formats/error.h"
#include "bie/models/architecture.h"
#include "bie/models/net_description.h"
#include "formats/json_text.h"
#include "models/model_plan.h"

namespace bie::models {
namespace {

using Json = nlohmann::json;

// 1: without norm, quantise_first and weights; 2: without linear_bits; 3: without bits_of and normalise; 4: without
// width and channel_scales, and depth is that of an mlp alone; 5: no regressions; 6: tables are not scaled as they are
// read.
constexpr int format_version = 7;

// Each of these takes a value of the field's type, or says what is wanted in its place.

const char* take(const Json& value, bool& field) {
  if (!value.is_boolean()) return "true or false";
  field = value.get<bool>();
  return nullptr;
}

const char* take(const Json& value, std::string& field) {
  if (!value.is_string()) return "a string";
  field = value.get<std::string>();
  return nullptr;
}

template <std::signed_integral T>
const char* take(const Json& value, T& field) {
  if (!formats::is_whole(value, std::numeric_limits<T>::min(), std::numeric_limits<T>::max())) return "a whole number";
  field = value.get<T>();
  return nullptr;
}

const char* take(const Json& value, std::array<std::int64_t, 3>& field) {
  bool good = value.is_array() && value.size() == field.size();
  for (std::size_t i = 0; good && i < field.size(); ++i) good = take(value[i], field[i]) == nullptr;
  return good ? nullptr : "an array of 3 whole numbers";
}

const char* take(const Json& value, std::map<std::string, int>& field) {
  bool good = value.is_object();
  if (good)
    for (const auto& [name, bits] : value.items()) good = good && take(bits, field[name]) == nullptr;
  return good ? nullptr : "an object of whole numbers";
}

const char* take(const Json& value, std::vector<std::string>& field) {
  bool good = value.is_array();
  if (good)
    for (const Json& name : value) good = good && take(name, field.emplace_back()) == nullptr;
  return good ? nullptr : "an array of strings";
}

/// The field of that name; `otherwise` where the file is older than the field.
template <class T>
T field(const Json& json, const char* name, const T& otherwise, bool optional) {
  const auto found = json.find(name);
  if (optional && found == json.end()) return otherwise;
  TORCH_CHECK_VALUE(found != json.end(), "it has no ", name);
  T value{};
  const char* const wanted = take(*found, value);
  const std::string got = formats::shown(*found);
  const bool is_like = wanted != nullptr && std::string_view(wanted).starts_with(got);  // an array of other things
  TORCH_CHECK_VALUE(wanted == nullptr, name, ": expected ", wanted, ", got ", is_like ? "another" : got);
  return value;
}

/// Such a net's depth stood in every version.
bool is_all_linear(const ModelConfig& c) {
  const Architecture* const architecture = find_architecture(c.arch);
  return architecture != nullptr && architecture->all_linear;
}

ModelConfig config_of(const Json& json) {
  const int version = field(json, "format_version", 0, false);
  TORCH_CHECK_VALUE(version >= 1 && version <= format_version, "format version ", version, ", this build reads up to ",
                    format_version);
  ModelConfig c;
  c.arch = field(json, "arch", c.arch, false);
  c.bits = field(json, "bits", c.bits, false);
  c.image = field(json, "image", c.image, false);
  c.classes = field(json, "classes", c.classes, false);
  c.hidden = field(json, "hidden", c.hidden, false);
  const auto depth = field(json, "depth", std::int64_t{0}, false),
             width = field(json, "width", std::int64_t{0}, version < 5);
  if (is_all_linear(c) || (version >= 5 && depth_of(c) > 0)) c.depth = depth;
  if (width != 0) c.width = width;
  c.norm = field(json, "norm", c.norm, version < 2);
  c.quantise_first = field(json, "quantise_first", c.quantise_first, version < 2);
  c.linear_bits = field(json, "linear_bits", c.linear_bits, version < 3);
  c.bits_of = field(json, "bits_of", c.bits_of, version < 4);
  c.normalise = field(json, "normalise", c.normalise, version < 4);
  c.channel_scales = field(json, "channel_scales", c.channel_scales, version < 5);
  if (const auto layers = json.find("layers"); layers != json.end()) c.layers = parse_layers(layers->dump());
  c.class_names = field(json, "class_names", c.class_names, true);
  TORCH_CHECK_VALUE(c.class_names.empty() || static_cast<std::int64_t>(c.class_names.size()) == c.classes,
                    c.class_names.size(), " class_names and ", c.classes, " classes");
  if (json.contains("fit")) {
    const std::string fit = field(json, "fit", std::string(), false);
    c.fit = formats::fit_of(fit);
    TORCH_CHECK_VALUE(c.fit, "fit: expected crop, pad or stretch, got ", formats::in_quotes(fit));
  }
  if (const auto table = json.find("table"); table != json.end()) {
    try {
      c.table = formats::parse_table(table->dump());
    } catch (const formats::Error& error) {
      TORCH_CHECK_VALUE(false, error.what());
    }
    TORCH_CHECK_VALUE(c.image[0] == 1 && c.image[1] == 1 && c.image[2] == c.table->features(),
                      "table: ", c.table->features(), " features, the model takes ", at::IntArrayRef(c.image));
    TORCH_CHECK_VALUE(!c.table->regression || c.classes == 1, "table: a regression has one output, classes is ",
                      c.classes);
  }
  c.weights = weight_form_of(field(json, "weights", std::string(name(c.weights)), version < 2));
  return c;
}

}  // namespace

std::string config_json(const ModelConfig& c) {
  // The oldest version that describes the model, so that older builds read what they can run.
  const int version = c.table && c.table->version >= 2                               ? 7
                      : c.is_regression()                                            ? 6
                      : (!is_all_linear(c) && !has_own_sizes(c)) || c.channel_scales ? 5
                      : !c.bits_of.empty() || c.normalise || !c.layers.empty()       ? 4
                                                                                     : 3;
  Json json = {{"format_version", version},
               {"arch", c.arch},
               {"bits", c.bits},
               {"image", c.image},
               {"classes", c.classes},
               {"hidden", c.hidden},
               {"depth", std::max<std::int64_t>(depth_of(c), 1)},  // older builds want one
               {"norm", c.norm},
               {"quantise_first", c.quantise_first},
               {"weights", name(c.weights)},
               {"linear_bits", c.linear_bits}};
  if (!c.layers.empty()) json["layers"] = Json::parse(layers_json(c.layers));
  if (version >= 4) json.update({{"bits_of", c.bits_of}, {"normalise", c.normalise}});
  if (version >= 5) json.update({{"width", width_of(c)}, {"channel_scales", c.channel_scales}});
  // Older builds pass over these.
  if (!c.class_names.empty()) json["class_names"] = c.class_names;
  if (c.fit) json["fit"] = formats::name(*c.fit);
  if (c.table) json["table"] = Json::parse(formats::table_json(*c.table));
  try {
    return json.dump();
  } catch (const Json::type_error&) {
    TORCH_CHECK_VALUE(false, "a class name or a layer name is not UTF-8");
  }
}

ModelConfig parse_config(const std::string& text) {
  const Json json = formats::parse_json(text);
  TORCH_CHECK_VALUE(json.is_object(), "not a JSON object");
  return config_of(json);
}

}  // namespace bie::models
