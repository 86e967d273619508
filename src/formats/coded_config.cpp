#include "formats/coded_config.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "bie/formats/error.h"
#include "formats/json_text.h"

namespace bie::formats {
namespace {

using Json = nlohmann::json;

struct Named {
  std::string_view key, name;
};
/// quant_method of formats that are told apart and not read.
constexpr Named methods[] = {{"awq", "AWQ"},
                             {"exl2", "ExLlamaV2's EXL2"},
                             {"exl3", "ExLlamaV3's EXL3"},
                             {"bitsandbytes", "bitsandbytes (nf4, fp4 or int8)"},
                             {"compressed-tensors", "compressed-tensors"},
                             {"hqq", "HQQ"},
                             {"aqlm", "AQLM"},
                             {"fp8", "fp8"},
                             {"fbgemm_fp8", "fp8"},
                             {"mxfp4", "MXFP4"},
                             {"quanto", "quanto"},
                             {"torchao", "torchao"},
                             {"eetq", "EETQ"},
                             {"bitnet", "BitNet"}};

std::string place(const WeightsFolder& folder, const std::string& name) { return folder.path + ": " + name; }

Json json_of(const WeightsFolder& folder, const std::string& name) {
  const auto found = folder.configs.find(name);
  if (found == folder.configs.end()) return {};
  Json json = parse_json(found->second);
  if (!json.is_object()) fail_file("weights", place(folder, name), "is no JSON object that can be read");
  return json;
}

/// The entry of an object, null where there is none.
const Json& at(const Json& json, const char* key) {
  static const Json none;
  const auto found = json.is_object() ? json.find(key) : json.end();
  return found == json.end() ? none : *found;
}

std::string text_at(const Json& json, const char* key) {
  const Json& value = at(json, key);
  return value.is_string() ? value.get<std::string>() : "";
}

bool is_set(const Json& json, const char* key) { return at(json, key) == Json(true); }

void check_method(const WeightsFolder& folder, const std::string& file, const Json& config) {
  const auto refuse = [&](std::string_view what, const char* key, const std::string& value) {
    fail_file("weights", place(folder, file), "is of ", what, " (", key, " ", in_quotes(value),
              "), which is not read; GPTQ's, GreenBit's and GGUF files are");
  };
  const std::string method = text_at(config, "quant_method");
  const auto* known = std::find_if(std::begin(methods), std::end(methods), [&](auto& m) { return m.key == method; });
  if (known != std::end(methods)) refuse(known->name, "quant_method", method);
  const bool is_own = method == "bie";  // whose layers stand in the metadata of the file
  if (is_own && folder.own.empty()) refuse("bie.hf.quantize_model, which transformers reads", "quant_method", method);
  if (!method.empty() && method != "gptq" && !is_own) refuse("a method that bie does not know", "quant_method", method);
  const std::string format = text_at(config, "checkpoint_format");
  if (is_set(config, "is_marlin_format")) refuse("marlin", "is_marlin_format", "true");
  if (!format.empty() && format != "gptq" && format != "gptq_v2")
    refuse("GPTQ in another layout", "checkpoint_format", format);
}

void add_sizes(const Json& config, Told* to) {
  for (const char* key : {"bits", "w_bit"})
    if (is_whole(at(config, key), 1, 8)) to->bits.push_back(at(config, key).get<int>());
  for (const char* key : {"group_size", "q_group_size"})
    if (is_whole(at(config, key), -1, INT32_MAX)) to->groups.push_back(at(config, key).get<std::int64_t>());
  if (at(config, "sym").is_boolean()) to->symmetric = at(config, "sym").get<bool>();
}

constexpr std::int64_t own_weights_version = 1;

// Bounds of what a hostile file can make of its patterns. The polynomial matcher has no back-references, which would
// cost exponential time.
constexpr std::size_t most_patterns = 1000, longest_pattern = 256;
constexpr std::int64_t most_states = 100'000, most_visits = 50'000'000;
#ifdef __GLIBCXX__
constexpr auto matcher = std::regex::ECMAScript | std::regex_constants::__polynomial;
#else
constexpr auto matcher = std::regex::ECMAScript;
#endif

/// The most states that a pattern's automaton has: a counted repetition, as {3,5}, is written out, one in another as
/// often as their product.
std::int64_t states_of(const std::string& pattern) {
  auto states = static_cast<std::int64_t>(pattern.size());
  for (std::size_t at = pattern.find('{'); at != std::string::npos; at = pattern.find('{', at + 1)) {
    std::int64_t most = 1, number = 0;
    for (std::size_t i = at + 1; i < pattern.size() && pattern[i] != '}'; ++i) {
      const bool is_digit = pattern[i] >= '0' && pattern[i] <= '9';
      number = is_digit ? std::min(10 * number + (pattern[i] - '0'), most_states) : 0;
      most = std::max(most, number);
    }
    states = std::min(states * most, most_states + 1);
  }
  return states;
}

Strategy strategy_of_json(const WeightsFolder& folder, const std::string& name, const Json& json) {
  const auto fail = [&](const char* what) {
    fail_file("weights", place(folder, "quant_strategy.json"), "the entry ", in_quotes(name), " has no ", what,
              " that can be read");
  };
  Strategy s;
  const Json &bits = at(json, "bits"), &shares = at(json, "bits_prop"), &groups = at(json, "group_size");
  if (!bits.is_array() || bits.empty() || bits.size() > 8) fail("bits");
  if (!shares.is_array() || shares.size() != bits.size()) fail("bits_prop");
  for (const Json& width : bits) {
    if (!is_whole(width, 1, 8)) fail("bits");
    s.bits.push_back(width.get<int>());
    const Json& group = at(groups, std::to_string(s.bits.back()).c_str());
    if (!is_whole(group, 1, INT32_MAX)) fail("group_size");
    s.groups.push_back(group.get<std::int64_t>());
  }
  for (const Json& share : shares) {
    if (!share.is_number() || !(share.get<double>() >= 0) || share.get<double>() > 1) fail("bits_prop");
    s.shares.push_back(share.get<double>());
  }
  return s;
}

}  // namespace

CodedConfig::CodedConfig(const WeightsFolder& folder) : path_(folder.path) {
  const Json inner = at(json_of(folder, "config.json"), "quantization_config");
  const Json own = json_of(folder, "quantize_config.json");
  if (inner.is_object()) check_method(folder, "config.json", inner);
  if (own.is_object()) check_method(folder, "quantize_config.json", own);
  for (const char* key : {"bits", "group_size", "checkpoint_format", "desc_act", "sym"}) {
    const Json &a = at(inner, key), &b = at(own, key);
    if (!a.is_null() && !b.is_null() && a != b)
      fail_file("weights", folder.path, key, " is ", shown(a), " in config.json and ", shown(b),
                " in quantize_config.json");
  }
  for (const auto& [config, file] : {std::pair{&inner, "config.json"}, {&own, "quantize_config.json"}}) {
    add_sizes(*config, &all_);
    add_overrides(folder, file, at(*config, "dynamic"));
    tells_symmetry = tells_symmetry || all_.symmetric;
    act_order = act_order || is_set(*config, "desc_act");
    zeros_as_they_are = zeros_as_they_are || text_at(*config, "checkpoint_format") == "gptq_v2";
  }
  for (const std::string& text : folder.own) add_own(folder, text);
  const Json strategy = json_of(folder, "quant_strategy.json");
  for (const auto& [block, linears] : at(strategy, "measurement").items()) {
    if (!linears.is_object()) continue;
    for (const auto& [linear, entry] : linears.items())
      if (entry.is_object() && entry.contains("bits"))
        strategies[block][linear] = strategy_of_json(folder, block + "." + linear, entry);
  }
}

void CodedConfig::add_own(const WeightsFolder& folder, const std::string& text) {
  const auto fail = [&](const auto&... parts) {
    fail_file("weights", folder.path, "the metadata entry 'bie' ", parts...);
  };
  const Json json = parse_json(text);
  if (!json.is_object()) fail("is no JSON object that can be read");
  if (text_at(json, "kind") != "weights") return;
  if (!is_whole(at(json, "format_version"), 1, own_weights_version))
    fail("has format_version ", shown(at(json, "format_version")), ", this bie reads up to ", own_weights_version);
  for (const auto& [name, layer] : at(json, "layers").items()) {
    Told told;
    add_sizes(layer, &told);
    if (told.bits.empty() || told.groups.empty()) fail("has no bits and group_size of ", in_quotes(name));
    const Json& width = at(layer, "embedding_dim");
    if (!width.is_null() && !is_whole(width, 1, INT32_MAX)) fail("has no embedding_dim of ", in_quotes(name));
    if (!width.is_null()) tables[name] = width.get<std::int64_t>();
    own_[name] = told;
  }
}

void CodedConfig::add_overrides(const WeightsFolder& folder, const std::string& file, const nlohmann::json& dynamic) {
  if (!dynamic.is_object()) return;
  if (dynamic.size() > most_patterns)
    fail_file("weights", place(folder, file), "dynamic has ", dynamic.size(), " entries, the limit is ", most_patterns);
  for (const auto& [key, sizes] : dynamic.items()) {
    // "-:" leaves layers as floats, which their tensors say as well.
    if (!sizes.is_object() || key.starts_with("-:") || key.size() > longest_pattern) continue;
    const std::int64_t states = states_of(key);
    if ((pattern_states_ += states) > most_states)
      fail_file("weights", place(folder, file), "dynamic has the pattern ", in_quotes(key),
                ", which repeats more than can be matched");
    Told told;
    add_sizes(sizes, &told);
    tells_symmetry = tells_symmetry || told.symmetric;
    try {
      overrides_.push_back({std::regex(key.starts_with("+:") ? key.substr(2) : key, matcher), states, told});
    } catch (const std::regex_error&) {
      fail_file("weights", place(folder, file), "dynamic has the pattern ", in_quotes(key), ", which cannot be read");
    }
  }
}

Told CodedConfig::told(const std::string& layer) const {
  const auto own = own_.find(layer);
  if (own != own_.end()) return own->second;
  Told told;
  if (layer.size() <= longest_pattern)
    for (const auto& [pattern, states, sizes] : overrides_) {
      if ((visits_ += states) > most_visits)
        throw Error("weights " + path_ +
                    ": dynamic has more patterns than can be matched with the names of its layers");
      if (std::regex_search(layer, pattern, std::regex_constants::match_continuous)) {
        told = sizes;
        break;
      }
    }
  told.bits.insert(told.bits.end(), all_.bits.begin(), all_.bits.end());
  told.groups.insert(told.groups.end(), all_.groups.begin(), all_.groups.end());
  if (!told.symmetric) told.symmetric = all_.symmetric;
  return told;
}

std::optional<Strategy> CodedConfig::strategy_of(const std::string& layer) const {
  for (std::size_t dot = layer.find('.'); dot != std::string::npos; dot = layer.find('.', dot + 1)) {
    const auto block = strategies.find(layer.substr(0, dot));
    if (block == strategies.end()) continue;
    const auto found = block->second.find(layer.substr(layer.rfind('.') + 1));
    if (found != block->second.end()) return found->second;
  }
  return std::nullopt;
}

}  // namespace bie::formats
