#include "llm/folder/settings.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "bie/formats/error.h"
#include "bie/kernels/exact_math.h"
#include "formats/json_text.h"
#include "llm/architectures.h"

namespace bie::llm::folder {
namespace {

using formats::GgufValue;
using formats::GgufValueType;
using formats::in_quotes;
using formats::joined;
using Json = nlohmann::json;

constexpr double pi = 3.141592653589793;

/// An object of the configuration; entries that are null count as missing.
class Entries {
 public:
  Entries(const std::string& path, const Json& json, std::string name = "")
      : path_(&path), json_(&json), name_(std::move(name)) {}

  [[noreturn]] void fail(const std::string& sentence) const { formats::fail_file("configuration", *path_, sentence); }

  const Json* find(const char* key) const {
    const auto found = json_->find(key);
    return found == json_->end() || found->is_null() ? nullptr : &*found;
  }
  bool has(const char* key) const { return find(key) != nullptr; }
  bool is_null(const char* key) const { return json_->contains(key) && !has(key); }

  std::int64_t whole(const char* key, std::optional<std::int64_t> otherwise = std::nullopt) const {
    const Json* const value = find(key);
    if (value == nullptr && otherwise) return *otherwise;
    if (value == nullptr) fail(quoted(key) + " is missing");
    if (!formats::is_whole(*value, 0, std::numeric_limits<std::int32_t>::max()))
      fail(joined(quoted(key), ": expected a whole number, got ", formats::shown(*value)));
    return value->get<std::int64_t>();
  }
  double real(const char* key, std::optional<double> otherwise = std::nullopt) const {
    const Json* const value = find(key);
    if (value == nullptr && otherwise) return *otherwise;
    if (value == nullptr) fail(quoted(key) + " is missing");
    if (!value->is_number()) fail(joined(quoted(key), ": expected a number, got ", formats::shown(*value)));
    return value->get<double>();
  }
  bool flag(const char* key, bool otherwise) const {
    const Json* const value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) fail(joined(quoted(key), ": expected true or false, got ", formats::shown(*value)));
    return value->get<bool>();
  }
  std::string text(const char* key, const char* otherwise) const {
    const Json* const value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) fail(joined(quoted(key), ": expected a text, got ", formats::shown(*value)));
    return value->get<std::string>();
  }
  std::optional<Entries> object(const char* key) const {
    const Json* const value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_object()) fail(joined(quoted(key), ": expected an object, got ", formats::shown(*value)));
    return Entries(*path_, *value, name_ + key + ".");
  }
  void expect(const char* key, const std::string& got, std::string_view expected) const {
    if (got != expected) fail(joined(quoted(key), ": expected ", in_quotes(expected), ", got ", in_quotes(got)));
  }
  std::string quoted(const char* key) const { return in_quotes(name_ + key); }

 private:
  const std::string* path_;
  const Json* json_;
  std::string name_;
};

class Reader {
 public:
  Reader(Entries entries, const Family& family) : of_(std::move(entries)), family_(family) {
    result_.family = &family;
    result_.metadata["general.architecture"] = {GgufValueType::string, std::string(family.architecture)};
  }

  Settings read() {
    const std::int64_t heads = of_.whole("num_attention_heads"), width = of_.whole("hidden_size");
    put("block_count", of_.whole("num_hidden_layers"));
    put("embedding_length", width);
    put("feed_forward_length", of_.whole("intermediate_size"));
    put("context_length", of_.whole("max_position_embeddings"));
    put("attention.head_count", heads);
    put("attention.head_count_kv", of_.whole("num_key_value_heads", heads));
    put_real("attention.layer_norm_rms_epsilon", of_.real("rms_norm_eps", 1e-6));
    if (heads < 1) of_.fail(joined(of_.quoted("num_attention_heads"), ": expected at least 1, got ", heads));
    if (!of_.has("head_dim") && width % heads != 0)
      of_.fail(joined(of_.quoted("hidden_size"), ": expected a number that ", heads, " heads divide, got ", width));
    head_ = of_.whole("head_dim", width / heads);
    put("attention.key_length", head_);
    put("attention.value_length", head_);
    put("rope.dimension_count", head_);
    activation();
    windows();
    rotations();
    caps();
    result_.is_tied = of_.flag("tie_word_embeddings", family_.is_tied);
    return std::move(result_);
  }

 private:
  void put(const std::string& key, std::int64_t value) {
    result_.metadata[joined(family_.architecture, ".", key)] = {GgufValueType::u32, static_cast<std::uint64_t>(value)};
  }
  /// As the 32-bit float that GGUF files hold.
  void put_real(const std::string& key, double value) {
    result_.metadata[joined(family_.architecture, ".", key)] = {GgufValueType::f32,
                                                                static_cast<double>(static_cast<float>(value))};
  }
  void put_text(const std::string& key, const std::string& value) {
    result_.metadata[joined(family_.architecture, ".", key)] = {GgufValueType::string, value};
  }

  void activation() {
    const char* const key = of_.has("hidden_activation") ? "hidden_activation" : "hidden_act";
    const std::string usual(family_.activation), name = of_.text(key, usual.c_str());
    if (!name.empty() && name == family_.other_activation)
      put_text("hidden_activation", name);
    else
      of_.expect(key, name, usual);
  }

  /// Reads which layers see a window.
  void windows() {
    if (of_.flag("use_bidirectional_attention", false))
      of_.fail(joined(of_.quoted("use_bidirectional_attention"), ": expected false, got true"));
    if (family_.has_end_norms) {
      if (of_.has("sliding_window")) put("attention.sliding_window", of_.whole("sliding_window"));
      layer_types();
      return;
    }
    if (of_.flag("use_sliding_window", false))
      of_.fail(joined(of_.quoted("use_sliding_window"), ": expected false, got true"));
    if (family_.has_windows && of_.has("sliding_window")) put("attention.sliding_window", of_.whole("sliding_window"));
  }

  /// Configurations state the period of the layers that see all positions, or list the kinds of all layers.
  void layer_types() {
    const std::int64_t pattern = architecture(family_.architecture)->pattern;
    if (of_.whole("sliding_window_pattern", pattern) != pattern)
      of_.fail(joined(of_.quoted("sliding_window_pattern"), ": expected ", pattern, ", got ",
                      of_.whole("sliding_window_pattern")));
    const Json* const types = of_.find("layer_types");
    if (types == nullptr) return;
    bool fits = types->is_array();
    std::int64_t i = 0;
    if (fits)
      for (const Json& type : *types)
        fits = fits && type == (i++ % pattern == pattern - 1 ? "full_attention" : "sliding_attention");
    if (!fits)
      of_.fail(joined(of_.quoted("layer_types"), ": expected a full_attention behind each ", pattern - 1,
                      " of sliding_attention, got another order"));
  }

  /// `rope_parameters` of today, `rope_theta` and `rope_scaling` of before, and Gemma 3's base of windows.
  void rotations() {
    if (const double share = of_.real("partial_rotary_factor", 1); share != 1)
      of_.fail(joined(of_.quoted("partial_rotary_factor"), ": expected 1, got ", share));
    std::optional<Entries> rope = of_.object("rope_parameters");
    double of_windows = of_.real("rope_local_base_freq", 10000);
    if (rope && rope->has("full_attention")) {
      const std::optional<Entries> local = rope->object("sliding_attention");
      if (local) {
        local->expect("rope_type", local->text("rope_type", "default"), "default");
        of_windows = local->real("rope_theta", of_windows);
      }
      rope = rope->object("full_attention");
    }
    if (!rope) rope = of_.object("rope_scaling");
    const double base = rope && rope->has("rope_theta") ? rope->real("rope_theta") : of_.real("rope_theta", 10000);
    put_real("rope.freq_base", base);
    if (family_.architecture == "gemma3" && of_windows != 10000) put_real("rope.freq_base_swa", of_windows);
    if (rope) scaling(*rope, base);
  }

  void scaling(const Entries& rope, double base) {
    const std::string type = rope.text("rope_type", rope.text("type", "default").c_str());
    if (const double share = rope.real("partial_rotary_factor", 1); share != 1)
      rope.fail(joined(rope.quoted("partial_rotary_factor"), ": expected 1, got ", share));
    if (type == "default") return;
    if (type == "linear") {
      put_text("rope.scaling.type", type);
      put_real("rope.scaling.factor", rope.real("factor"));
    } else if (type == "yarn") {
      yarn(rope);
    } else if (type == "llama3") {
      llama3(rope, base);
    } else {
      rope.fail(joined(rope.quoted("rope_type"), ": expected default, linear, yarn or llama3, got ", in_quotes(type)));
    }
  }

  void yarn(const Entries& rope) {
    const auto context = static_cast<double>(of_.whole("max_position_embeddings"));
    const double original = rope.real("original_max_position_embeddings", context);
    const double factor = rope.real("factor", context / original);
    put_text("rope.scaling.type", "yarn");
    put_real("rope.scaling.factor", factor);
    put("rope.scaling.original_context_length",
        rope.whole("original_max_position_embeddings", of_.whole("max_position_embeddings")));
    put_real("rope.scaling.yarn_beta_fast", rope.real("beta_fast", 32));
    put_real("rope.scaling.yarn_beta_slow", rope.real("beta_slow", 1));
    if (!rope.flag("truncate", true)) rope.fail(rope.quoted("truncate") + ": expected true, got false");
    const double usual = 0.1 * std::log(factor) + 1;
    if (const double given = rope.real("attention_factor", usual); std::fabs(given - usual) > 1e-6 * usual)
      rope.fail(joined(rope.quoted("attention_factor"), ": expected ", usual, ", got ", given));
    for (const char* key : {"mscale", "mscale_all_dim"})
      if (rope.has(key)) rope.fail(joined(rope.quoted(key), ": expected none, got ", rope.real(key)));
  }

  /// Llama 3.1: pairs that turn slowly are divided by the factor, fast ones by 1, and between them is a ramp.
  void llama3(const Entries& rope, double base) {
    const double factor = rope.real("factor"), low = rope.real("low_freq_factor", 1),
                 high = rope.real("high_freq_factor", 4);
    const double original = rope.real("original_max_position_embeddings", 8192);
    if (!(base > 1) || !(factor > 0) || !(high > low))
      rope.fail(
          joined("expected a rope_theta above 1, a factor above 0 and a high_freq_factor above low_freq_factor, "
                 "got ",
                 base, ", ", factor, ", ", high, " and ", low));
    const double log_base = kernels::exact_log(base), size = static_cast<double>(head_);
    for (std::int64_t i = 0; i < std::min<std::int64_t>(head_ / 2, most_pairs); ++i) {
      const double frequency = kernels::exact_exp(-2.0 * static_cast<double>(i) / size * log_base);
      const double turns = original * frequency / (2 * pi);
      const double share = std::min(1.0, std::max(0.0, (turns - low) / (high - low)));
      result_.divisors.push_back(static_cast<float>(1 / ((1 - share) / factor + share)));
    }
  }

  void caps() {
    if (!family_.has_end_norms) return;
    for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"})
      if (of_.has(key) || of_.is_null(key)) put_real(key, of_.real(key, 0));  // null: none; missing: the family's
    if (const double scalar = of_.real("query_pre_attn_scalar", static_cast<double>(head_));
        scalar != static_cast<double>(head_)) {
      if (!(scalar > 0)) of_.fail(joined(of_.quoted("query_pre_attn_scalar"), ": expected more than 0, got ", scalar));
      put_real("attention.scale", 1 / std::sqrt(scalar));
    }
  }

  static constexpr std::int64_t most_pairs = 1 << 16;
  const Entries of_;
  const Family& family_;
  std::int64_t head_ = 0;
  Settings result_;
};

/// The class that the model's own code calls it by, the first of a list.
std::string class_name(const Entries& entries) {
  const Json* const classes = entries.find("architectures");
  const bool has_name = classes != nullptr && classes->is_array() && !classes->empty() && (*classes)[0].is_string();
  return has_name ? (*classes)[0].get<std::string>() : "";
}

/// The part of the configuration of a model with pictures that is about text.
const Json& text_config(const Entries& entries) {
  constexpr const char* key = "text_config";
  if (!entries.object(key)) entries.fail(entries.quoted(key) + " is missing");
  return *entries.find(key);
}

}  // namespace

Settings read_settings(const std::string& path, const std::string& text) {
  const Json json = formats::parse_json(text);
  if (!json.is_object()) formats::fail_file("configuration", path, "expected an object of JSON, got something else");
  const Entries whole(path, json);
  const std::string model_type = whole.text("model_type", "");
  const Family* const found = family(model_type, class_name(whole));
  if (found == nullptr)
    whole.fail(
        joined(whole.quoted("model_type"), ": expected one of ", model_types(), ", got ", in_quotes(model_type)));
  const bool has_pictures = !model_type.empty() && model_type == found->whole_model_type;
  Json said = formats::parse_json(std::string(found->defaults));
  said.update(has_pictures ? text_config(whole) : json);
  if (has_pictures && whole.has("tie_word_embeddings")) said["tie_word_embeddings"] = json["tie_word_embeddings"];
  return Reader(Entries(path, said, has_pictures ? "text_config." : ""), *found).read();
}

}  // namespace bie::llm::folder
