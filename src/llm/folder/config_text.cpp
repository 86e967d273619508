#include "llm/folder/config_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "bie/formats/error.h"
#include "bie/llm/config.h"
#include "formats/json_text.h"
#include "llm/architectures.h"
#include "llm/folder/family.h"
#include "llm/folder/settings.h"
#include "llm/metadata.h"

namespace bie::llm::folder {
namespace {

using formats::in_quotes;
using formats::joined;
using Json = nlohmann::json;

/// Converters compute divisors of frequencies in float32.
constexpr double divisor_tolerance = 1e-6;

/// The shortest decimal that is read as the same 32-bit float; a number that is no such float comes back as it is.
double short_decimal(double value) {
  const auto single = static_cast<float>(value);
  if (static_cast<double>(single) != value) return value;
  std::array<char, 32> text{};
  const char* const end = std::to_chars(text.data(), text.data() + text.size(), single).ptr;
  double decimal = 0;
  std::from_chars(text.data(), end, decimal);
  return static_cast<float>(decimal) == single ? decimal : value;
}

std::string_view name_of(Activation activation) {
  switch (activation) {
    case Activation::silu: return "silu";
    case Activation::relu2: return "relu2";
    case Activation::gelu: return "gelu_pytorch_tanh";
  }
  return "";
}

bool are_near(const std::vector<double>& found, const std::vector<double>& wanted, double tolerance) {
  bool are = found.size() == wanted.size();
  for (std::size_t i = 0; are && i < found.size(); ++i) are = std::fabs(found[i] - wanted[i]) <= tolerance * wanted[i];
  return are;
}

std::vector<double> doubles_of(const std::vector<float>& values) { return {values.begin(), values.end()}; }

class Writer {
 public:
  explicit Writer(const ModelFile& gguf)
      : gguf_(gguf), data_(gguf), config_(read_config(gguf)), prefix_(joined(config_.architecture->name, ".")) {
    family_ = family_of(config_.architecture->name, config_.layer(0).window > 0);
    if (family_ == nullptr)
      gguf_.fail(joined("expected an architecture that folders have, got ", config_.architecture->name));
  }

  Json written() {
    names();
    sizes();
    activation();
    biases();
    windows();
    scores();
    tokens();
    rotations();
    expect_as_read(json_.dump());
    return json_;
  }

 private:
  double real(const char* key, double otherwise) const { return data_.real(prefix_ + key).value_or(otherwise); }

  void names() {
    json_["architectures"] = {family_->class_name};
    json_["model_type"] = family_->model_type;
  }

  void sizes() {
    json_["hidden_size"] = config_.width;
    json_["intermediate_size"] = config_.inner;
    json_["num_hidden_layers"] = config_.layers;
    json_["num_attention_heads"] = config_.heads;
    json_["num_key_value_heads"] = config_.kv_heads;
    json_["head_dim"] = config_.head_size;
    json_["max_position_embeddings"] = config_.context;
    json_["vocab_size"] = config_.vocabulary;
    json_["rms_norm_eps"] = short_decimal(static_cast<double>(config_.eps));
    json_["tie_word_embeddings"] = gguf_.is_tied();
  }

  void activation() {
    const std::string_view name = name_of(config_.activation);
    if (name != family_->activation && name != family_->other_activation)
      gguf_.fail(joined("expected the activation ", family_->activation, " of ", family_->class_name, ", got ", name));
    json_[family_->has_end_norms ? "hidden_activation" : "hidden_act"] = name;
  }

  /// Where some linears of attention have a bias, all of them have one in transformers, which is zero unless stored.
  /// Source: the package transformers, `modeling_*.py`.
  void biases() {
    const bool is_qwen2 = family_->model_type == "qwen2", is_mistral = family_->model_type == "mistral",
               is_llama = family_->class_name == "LlamaForCausalLM";
    bool has_attention = false, has_unit = false;
    for (const formats::GgufTensor& tensor : gguf_.gguf.tensors) {
      const std::string& name = tensor.name;
      if (!name.ends_with(".bias")) continue;
      const bool is_input =
          name.ends_with(".attn_q.bias") || name.ends_with(".attn_k.bias") || name.ends_with(".attn_v.bias");
      const bool of_attention = !is_mistral && (is_input || (!is_qwen2 && name.ends_with(".attn_output.bias")));
      const bool of_unit = is_llama && name.find(".ffn_") != std::string::npos;
      if (!of_attention && !of_unit)
        gguf_.fail(joined("expected biases that ", family_->class_name, " has, got ", in_quotes(name)));
      has_attention = has_attention || of_attention;
      has_unit = has_unit || of_unit;
    }
    if (!is_qwen2 && !is_mistral) json_["attention_bias"] = has_attention;
    if (is_llama) json_["mlp_bias"] = has_unit;
  }

  void windows() {
    const std::int64_t window = config_.layer(0).window;
    if (family_->has_end_norms && window == 0)
      gguf_.fail(joined("expected windows in layers of ", family_->class_name, ", got none"));
    if (!family_->has_end_norms && !family_->has_windows && window > 0)
      gguf_.fail(joined("expected no windows in layers of ", family_->class_name, ", got windows of ", window));
    if (window > 0) json_["sliding_window"] = window;
    if (!family_->has_end_norms) return;
    for (const LayerConfig& layer : config_.per_layer)
      json_["layer_types"].push_back(layer.window > 0 ? "sliding_attention" : "full_attention");
  }

  /// Puts what scores are divided by, and soft caps.
  void scores() {
    const auto scale = static_cast<double>(config_.scale);
    const double scalar =
        family_->has_end_norms ? std::round(1 / (scale * scale)) : static_cast<double>(config_.head_size);
    constexpr double most = std::numeric_limits<std::int32_t>::max();
    if (!(scalar >= 1 && scalar <= most) || static_cast<float>(1 / std::sqrt(scalar)) != config_.scale)
      gguf_.fail(joined("expected scores times 1 / sqrt(", family_->has_end_norms ? "a whole number" : "head_dim",
                        "), got scores times ", scale));
    if (!family_->has_end_norms) return;
    json_["query_pre_attn_scalar"] = static_cast<std::int64_t>(scalar);
    json_["attn_logit_softcapping"] = cap(config_.score_cap);
    json_["final_logit_softcapping"] = cap(config_.logit_cap);
  }
  static Json cap(float value) { return value == 0 ? Json() : Json(short_decimal(static_cast<double>(value))); }

  /// Tokens that begin, end and pad; a second one that ends stands beside the first.
  void tokens() {
    json_["bos_token_id"] = token("bos_token_id");
    json_["pad_token_id"] = token("padding_token_id");
    const Json eos = token("eos_token_id"), eot = token("eot_token_id");
    const bool has_both = !eos.is_null() && !eot.is_null() && eos != eot;
    json_["eos_token_id"] = has_both ? Json{eos, eot} : eos.is_null() ? eot : eos;
  }
  Json token(const char* name) const {
    const std::string key = joined("tokenizer.ggml.", name);
    return data_.whole(key) ? Json(data_.whole(key, 0, config_.vocabulary - 1)) : Json();
  }

  void rotations() {
    if (2 * config_.pairs() != config_.head_size)
      gguf_.fail(
          joined("expected rotations of all ", config_.head_size, " elements of a head, got ", 2 * config_.pairs()));
    json_["rope_theta"] = short_decimal(real("rope.freq_base", 10000));
    if (config_.architecture->turns_windows)
      json_["rope_local_base_freq"] = short_decimal(real("rope.freq_base_swa", 10000));
    const std::string type = data_.text(prefix_ + "rope.scaling.type").value_or("none");
    const formats::GgufTensor* const divisors = gguf_.gguf.find("rope_freqs.weight");
    if (divisors != nullptr && type != "none")
      gguf_.fail(joined("expected one scaling of rotations, got \"rope_freqs.weight\" beside ", type));
    const double factor = short_decimal(real("rope.scaling.factor", 1));
    if (divisors != nullptr) put_divisors(*divisors);
    if (type == "linear") json_["rope_scaling"] = {{"rope_type", type}, {"factor", factor}};
    if (type == "yarn") put_yarn(factor);
  }

  void put_yarn(double factor) {
    const double original = real("rope.scaling.original_context_length",
                                 static_cast<double>(config_.context) / real("rope.scaling.factor", 1));
    if (original != std::floor(original))
      gguf_.fail(joined("expected a whole number of positions before the scaling yarn, got ", original));
    if (factor < 1) gguf_.fail(joined("expected a factor of at least 1 of the scaling yarn, got ", factor));
    json_["rope_scaling"] = {{"rope_type", "yarn"},
                             {"factor", factor},
                             {"original_max_position_embeddings", static_cast<std::int64_t>(original)},
                             {"beta_fast", short_decimal(real("rope.scaling.yarn_beta_fast", 32))},
                             {"beta_slow", short_decimal(real("rope.scaling.yarn_beta_slow", 1))}};
  }

  /// Searches the settings of llama 3 for those whose divisors a file has.
  void put_divisors(const formats::GgufTensor& tensor) {
    const formats::Array array = formats::gguf_array(gguf_.gguf, tensor);
    const std::vector<double> wanted(array.data<float>(), array.data<float>() + tensor.count());
    double largest = 1;
    for (const double divisor : wanted) largest = std::fmax(largest, divisor);
    constexpr int least = 32, powers = 16, released = 8;  // 32 to 2^20, of which 8192 = 32 << 8 comes first
    for (int i = 0; i < powers; ++i)
      for (const double factor : {8.0, 32.0, 16.0, 4.0, 2.0, short_decimal(largest)}) {
        json_["rope_scaling"] = {{"rope_type", "llama3"},
                                 {"factor", factor},
                                 {"low_freq_factor", 1.0},
                                 {"high_freq_factor", 4.0},
                                 {"original_max_position_embeddings", least << (released + i) % powers}};
        const Settings settings = read_settings(gguf_.path(), json_.dump());
        if (are_near(doubles_of(settings.divisors), wanted, divisor_tolerance)) return;
      }
    gguf_.fail("expected divisors of rotations that the scaling llama3 has, got others in \"rope_freqs.weight\"");
  }

  /// Refuses numbers that a folder's metadata, which are of 32 bits, change.
  void expect_as_read(const std::string& text) const {
    const Settings settings = read_settings(gguf_.path(), text);
    ModelFile folder;
    folder.gguf.path = gguf_.path();
    folder.gguf.metadata = settings.metadata;
    folder.family = settings.family;
    folder.codes = gguf_.codes;
    if (const auto* const embedding = gguf_.gguf.find("token_embd.weight")) folder.gguf.tensors.push_back(*embedding);
    Config read = read_config(folder);
    for (std::size_t i = 0; i < settings.divisors.size(); ++i)
      read.rotations[0].frequencies[i] /= static_cast<double>(settings.divisors[i]);
    if (read.scale != config_.scale)
      gguf_.fail(joined("expected scores times ", read.scale, ", got scores times ", config_.scale));
    for (std::size_t i = 0; i < read.rotations.size(); ++i)
      if (read.rotations[i].size != config_.rotations[i].size ||
          !are_near(read.rotations[i].frequencies, config_.rotations[i].frequencies,
                    settings.divisors.empty() ? 0 : 2 * divisor_tolerance))
        gguf_.fail("expected settings of rotations that are floats of 32 bits, got others");
  }

  const ModelFile& gguf_;
  const Metadata data_;
  const Config config_;
  const std::string prefix_;
  const Family* family_ = nullptr;
  Json json_;
};

}  // namespace

std::string config_text(const ModelFile& gguf, const std::string& dtype) {
  Json json = Writer(gguf).written();
  json["torch_dtype"] = dtype;
  return json.dump(2) + "\n";
}

}  // namespace bie::llm::folder
