#include "bie/formats/ternary_layers.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "bie/formats/error.h"
#include "formats/half.h"
#include "formats/json_text.h"

namespace bie::formats {
namespace {

using Json = nlohmann::json;

constexpr float least_scale = 1e-5F;

const char* const config_name = "config.json";

Json config_of(const WeightsFolder& folder) {
  const auto found = folder.configs.find(config_name);
  if (found == folder.configs.end()) return {};
  Json config = parse_json(found->second);
  return config.is_object() ? config : Json();
}

/// Whether this is a model of 1bitLLM, whose class quantises its weights as they are used and says so by its name
/// alone.
bool is_of_1bitllm(const Json& config) {
  const auto found = config.find("architectures");
  return found != config.end() && *found == Json::array({"BitnetForCausalLM"});
}

std::string text_of(const Json& json, const char* key, const char* otherwise) {
  if (!json.is_object()) return otherwise;
  const auto found = json.find(key);
  return found == json.end() || !found->is_string() ? otherwise : found->get<std::string>();
}

class Reader {
 public:
  /// @param config  the entry "quantization_config".
  Reader(const WeightsFolder& folder, const Json& config) : folder_(folder) {
    const std::string linear_class = text_of(config, "linear_class", "bitlinear");
    const std::string mode = text_of(config, "quantization_mode", "offline");
    if (linear_class != "bitlinear" && linear_class != "autobitlinear")
      fail_config("linear_class", "bitlinear or autobitlinear", in_quotes(linear_class));
    if (mode != "offline" && mode != "online") fail_config("quantization_mode", "offline or online", in_quotes(mode));
    const auto norms = config.find("use_rms_norm");
    if (norms != config.end() && norms->is_boolean() && norms->get<bool>())
      fail_config("use_rms_norm", "false", "true");
    divides_ = linear_class == "bitlinear";
    is_online_ = mode == "online";
  }

  static Reader of_1bitllm(const WeightsFolder& folder, const Json& config) {
    Reader reader(folder, Json::object({{"quantization_mode", "online"}}));
    for (const auto& [key, bits] : {std::pair{"weight_bits", 1}, {"input_bits", 8}})
      if (const auto found = config.find(key); found != config.end() && *found != Json(bits))
        reader.fail_config(key, std::to_string(bits), shown(*found));
    return reader;
  }

  TernaryModel read(bool (*is_linear)(const std::string& name)) const {
    constexpr std::string_view end = ".weight", scale_end = ".weight_scale";
    TernaryModel model;
    for (const auto& [name, array] : folder_.arrays) {
      const bool is_weight = name.ends_with(end);
      const std::string layer = is_weight ? name.substr(0, name.size() - end.size()) : name;
      if (is_weight && array.element == Element::u8)
        model.layers.emplace(layer, packed(layer, array));
      else if (is_weight && is_online_ && array.sizes.size() == 2 && is_linear(name))
        model.layers.emplace(layer, rounded(name, array));
      else if (!name.ends_with(scale_end))
        model.rest.emplace(name, array);
    }
    return model;
  }

 private:
  [[noreturn]] void fail_config(const char* key, const std::string& expected, const std::string& got) const {
    fail_file("weights", folder_.path + ": " + config_name, in_quotes(key), ": expected ", expected, ", got ", got);
  }
  template <class... Text>
  [[noreturn]] void fail(const std::string& tensor, const Text&... text) const {
    const auto file = folder_.files.find(tensor);
    fail_file("weights", file == folder_.files.end() ? folder_.path : file->second, "tensor ", in_quotes(tensor),
              text...);
  }

  float value(const std::string& tensor, const Array& array, std::int64_t index) const {
    switch (array.element) {
      case Element::f32: return array.data<float>()[index];
      case Element::f16: return float_of_half(array.data<std::uint16_t>()[index]);
      case Element::bf16: return float_of_bfloat(array.data<std::uint16_t>()[index]);
      default: fail(tensor, ": expected float32, float16 or bfloat16, got ", formats::name(array.element));
    }
  }

  TernaryLayer packed(const std::string& layer, const Array& codes) const {
    const std::string name = layer + ".weight", scale_name = layer + ".weight_scale";
    if (codes.sizes.size() != 2) fail(name, ": expected a matrix, got ", listed(codes.sizes));
    const auto found = folder_.arrays.find(scale_name);
    if (found == folder_.arrays.end()) fail(scale_name, " is missing");
    if (found->second.count() != 1) fail(scale_name, ": expected one number, got ", listed(found->second.sizes));
    const float given = value(scale_name, found->second, 0);
    const float scale = divides_ ? 1 / given : given;
    if (!(std::isfinite(scale) && scale > 0)) fail(scale_name, ": expected a positive number, got ", given);
    const auto* bytes = codes.data<std::uint8_t>();
    if (std::any_of(bytes, bytes + codes.count(), [](std::uint8_t b) { return (b & b >> 1 & 0x55) != 0; }))
      fail(name, ": expected codes of 0, 1 and 2, got a 3");
    return {4 * codes.sizes[0], codes.sizes[1], codes, scale};
  }

  TernaryLayer rounded(const std::string& name, const Array& floats) const {
    const std::int64_t outputs = floats.sizes[0], inputs = floats.sizes[1], rows = outputs / 4;
    if (outputs % 4 != 0) fail(name, ": expected a multiple of 4 outputs, got ", outputs);
    double sum = 0;
    for (std::int64_t i = 0; i < floats.count(); ++i) sum += std::fabs(static_cast<double>(value(name, floats, i)));
    if (!std::isfinite(sum)) fail(name, " holds NaN or infinity");
    const auto mean = static_cast<float>(sum / static_cast<double>(std::max<std::int64_t>(1, floats.count())));
    const float scale = std::max(mean, least_scale), inverse = 1 / scale;
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * inputs));
    for (std::int64_t j = 0; j < outputs; ++j)
      for (std::int64_t i = 0; i < inputs; ++i) {
        const float nearest = std::nearbyint(value(name, floats, j * inputs + i) * inverse);
        const int code = static_cast<int>(std::clamp(nearest, -1.0F, 1.0F)) + 1;
        auto& byte = codes[static_cast<std::size_t>(j % rows * inputs + i)];
        byte = static_cast<std::uint8_t>(byte | code << 2 * (j / rows));
      }
    return {outputs, inputs, array_of(Element::u8, {rows, inputs}, std::move(codes)), scale};
  }

  const WeightsFolder& folder_;
  bool divides_ = true, is_online_ = false;
};

}  // namespace

std::optional<TernaryModel> ternary_layers(const WeightsFolder& folder, bool (*is_linear)(const std::string& name)) {
  const Json config = config_of(folder);
  if (is_of_1bitllm(config)) return Reader::of_1bitllm(folder, config).read(is_linear);
  const auto found = config.find("quantization_config");
  if (found == config.end() || text_of(*found, "quant_method", "") != "bitnet") return std::nullopt;
  return Reader(folder, *found).read(is_linear);
}

}  // namespace bie::formats
