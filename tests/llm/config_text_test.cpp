// Configurations of folders that are written of GGUF files: their entries, and what the reader makes of them.
#include "llm/folder/config_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bie/formats/error.h"
#include "bie/llm/config.h"
#include "llm/folder/family.h"
#include "llm/folder/settings.h"
#include "tests/support/scratch.h"

namespace bie::llm::folder {
namespace {

using bie::test::refusal;
using formats::GgufValue;
using Json = nlohmann::json;
using Type = formats::GgufValueType;

constexpr std::int64_t width = 60, rows = 37;

GgufValue whole(std::uint64_t value) { return {Type::u32, value}; }
GgufValue real(float value) { return {Type::f32, static_cast<double>(value)}; }
GgufValue text(const char* value) { return {Type::string, std::string(value)}; }

formats::GgufTensor floats(std::string name, std::vector<std::int64_t> sizes, const std::vector<float>& values = {}) {
  std::vector<std::uint8_t> bytes(4 * values.size());
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  const auto count = static_cast<std::int64_t>(values.size());
  return {std::move(name), std::move(sizes), formats::gguf_type("F32"),
          formats::array_of(formats::Element::f32, {count}, std::move(bytes)).bytes};
}

/// A file of this architecture with sizes that no family has by default.
class File {
 public:
  explicit File(std::string architecture) : architecture_(std::move(architecture)) {
    model_.gguf.path = "small.gguf";
    model_.gguf.metadata["general.architecture"] = text(architecture_.c_str());
    model_.gguf.tensors.push_back(floats("token_embd.weight", {rows, width}));
    set("block_count", whole(7));
    set("embedding_length", whole(width));
    set("feed_forward_length", whole(90));
    set("context_length", whole(1234));
    set("attention.head_count", whole(6));
    set("attention.head_count_kv", whole(3));
    set("attention.key_length", whole(14));
    set("attention.layer_norm_rms_epsilon", real(3e-5f));
    set("rope.freq_base", real(54321.5f));
    if (is_gemma()) set("attention.sliding_window", whole(77));
  }

  bool is_gemma() const { return architecture_.starts_with("gemma"); }
  File& set(const std::string& key, GgufValue value) {
    model_.gguf.metadata[formats::joined(architecture_, ".", key)] = std::move(value);
    return *this;
  }
  File& set_token(const std::string& key, std::uint64_t id) {
    model_.gguf.metadata["tokenizer.ggml." + key] = whole(id);
    return *this;
  }
  File& add(formats::GgufTensor tensor) {
    model_.gguf.tensors.push_back(std::move(tensor));
    return *this;
  }
  File& yarn(float factor) {
    return set("rope.scaling.type", text("yarn"))
        .set("rope.scaling.factor", real(factor))
        .set("rope.scaling.original_context_length", whole(600))
        .set("rope.scaling.yarn_beta_fast", real(16.1f))
        .set("rope.scaling.yarn_beta_slow", real(2));
  }

  const ModelFile& model() const { return model_; }
  Json json() const { return Json::parse(config_text(model_, "bfloat16")); }
  std::string sentence() const {
    return refusal([&] { config_text(model_, "bfloat16"); });
  }

 private:
  std::string architecture_;
  ModelFile model_;
};

/// A folder with this configuration, as open_folder would describe it.
ModelFile folder_with(const std::string& text) {
  const Settings settings = read_settings("config.json", text);
  ModelFile folder;
  folder.gguf.metadata = settings.metadata;
  folder.family = settings.family;
  folder.gguf.tensors.push_back(floats("token_embd.weight", {rows, width}));
  const auto count = static_cast<std::int64_t>(settings.divisors.size());
  if (count > 0) folder.gguf.tensors.push_back(floats("rope_freqs.weight", {count}, settings.divisors));
  return folder;
}

/// Expects a folder of the file's configuration to be the same model; returns the configuration.
Json expect_same_model(const File& file, double tolerance = 0) {
  const Config wanted = read_config(file.model()),
               found = read_config(folder_with(config_text(file.model(), "bfloat16")));
  const auto sizes = [](const Config& c) {
    return std::vector<std::int64_t>{c.layers,   c.width,     c.inner,      c.heads,
                                     c.kv_heads, c.head_size, c.vocabulary, c.context};
  };
  const auto numbers = [](const Config& c) {
    return std::vector<float>{c.eps, c.scale, c.embedding_factor, c.score_cap, c.logit_cap};
  };
  EXPECT_EQ(found.architecture, wanted.architecture);
  EXPECT_EQ(sizes(found), sizes(wanted));
  EXPECT_EQ(numbers(found), numbers(wanted));
  EXPECT_EQ(found.activation, wanted.activation);
  EXPECT_EQ(found.per_layer.size(), wanted.per_layer.size());
  for (std::size_t i = 0; i < wanted.per_layer.size(); ++i) {
    EXPECT_EQ(found.per_layer[i].window, wanted.per_layer[i].window) << i;
    EXPECT_EQ(found.per_layer[i].rotation, wanted.per_layer[i].rotation) << i;
  }
  EXPECT_EQ(found.rotations.size(), wanted.rotations.size());
  for (std::size_t i = 0; i < wanted.rotations.size(); ++i) {
    const std::vector<double>&f = found.rotations[i].frequencies, &w = wanted.rotations[i].frequencies;
    EXPECT_EQ(found.rotations[i].size, wanted.rotations[i].size);
    EXPECT_EQ(f.size(), w.size());
    for (std::size_t j = 0; j < w.size(); ++j) EXPECT_LE(std::fabs(f[j] - w[j]), tolerance * w[j]) << i << ", " << j;
  }
  return file.json();
}

void expect_has(const Json& json, const Json& entries) {
  for (const auto& [key, value] : entries.items()) EXPECT_EQ(json.value(key, Json("nothing")), value) << key;
}

/// The divisors of llama 3.1 as its converter states them: by lengths of waves, in float32 where it computes so.
std::vector<float> divisors(float factor, float base, float original, std::size_t pairs) {
  std::vector<float> found;
  for (std::size_t i = 0; i < pairs; ++i) {
    const float wave = 2 * 3.14159265f * std::pow(base, static_cast<float>(i) / static_cast<float>(pairs));
    const float smooth = (original / wave - 1) / 3;
    const bool is_short = wave<original / 4, is_long = wave> original;
    found.push_back(is_short ? 1 : is_long ? factor : 1 / ((1 - smooth) / factor + smooth));
  }
  return found;
}

struct Kind {
  const char *architecture, *model_type, *class_name, *activation;
};
constexpr Kind kinds[] = {
    {"llama", "llama", "LlamaForCausalLM", "silu"},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", "silu"},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", "silu"},
    {"gemma2", "gemma2", "Gemma2ForCausalLM", "gelu_pytorch_tanh"},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM", "gelu_pytorch_tanh"},
    {"bitnet-b1.58", "bitnet", "BitNetForCausalLM", "relu2"},
    {"bitnet", "llama", "BitnetForCausalLM", "silu"},
};

TEST(ConfigText, EachArchitectureIsReadBack) {
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.architecture);
    const File file(kind.architecture);
    const Json json = expect_same_model(file);
    expect_has(json, {{"model_type", kind.model_type},
                      {"architectures", Json::array({kind.class_name})},
                      {file.is_gemma() ? "hidden_activation" : "hidden_act", kind.activation},
                      {"hidden_size", 60},
                      {"intermediate_size", 90},
                      {"num_hidden_layers", 7},
                      {"num_attention_heads", 6},
                      {"num_key_value_heads", 3},
                      {"head_dim", 14},
                      {"max_position_embeddings", 1234},
                      {"vocab_size", 37},
                      {"rms_norm_eps", 3e-5},
                      {"rope_theta", 54321.5},
                      {"tie_word_embeddings", true},
                      {"bos_token_id", nullptr},
                      {"eos_token_id", nullptr},
                      {"pad_token_id", nullptr},
                      {"torch_dtype", "bfloat16"}});
    EXPECT_FALSE(json.contains("rope_scaling"));
    EXPECT_EQ(read_settings("config.json", json.dump()).family, family_of(kind.architecture, false));
  }
}

TEST(ConfigText, FloatsAreTheShortestDecimals) {
  File file("llama");
  file.set("attention.layer_norm_rms_epsilon", real(1e-6f)).set("rope.freq_base", real(5e5f));
  const std::string text = config_text(file.model(), "float16");
  EXPECT_NE(text.find("\"rms_norm_eps\": 1e-06,\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\"rope_theta\": 500000.0,\n"), std::string::npos) << text;
}

TEST(ConfigText, AHeadAndTokens) {
  File file("llama");
  file.add(floats("output.weight", {rows, width}));
  file.set_token("bos_token_id", 0).set_token("eos_token_id", 36).set_token("padding_token_id", 5);
  expect_has(expect_same_model(file),
             {{"tie_word_embeddings", false}, {"bos_token_id", 0}, {"eos_token_id", 36}, {"pad_token_id", 5}});
  file.set_token("eot_token_id", 36);
  expect_has(file.json(), {{"eos_token_id", 36}});
  file.set_token("eot_token_id", 7);
  expect_has(file.json(), {{"eos_token_id", {36, 7}}});
  file.set_token("bos_token_id", 37);
  EXPECT_NE(file.sentence().find("bos_token_id\": expected 0 to 36, got 37"), std::string::npos) << file.sentence();
}

TEST(ConfigText, ALlamaWithWindowsIsAMistral) {
  File file("llama");
  file.set("attention.sliding_window", whole(19));
  expect_has(
      expect_same_model(file),
      {{"model_type", "mistral"}, {"architectures", Json::array({"MistralForCausalLM"})}, {"sliding_window", 19}});
  file.set("attention.sliding_window", whole(0));
  const Json json = expect_same_model(file);
  expect_has(json, {{"model_type", "llama"}});
  EXPECT_FALSE(json.contains("sliding_window"));
}

TEST(ConfigText, GemmasListTheKindsOfTheirLayers) {
  const Json full = "full_attention", sliding = "sliding_attention";
  expect_has(expect_same_model(File("gemma2")),
             {{"sliding_window", 77},
              {"layer_types", {sliding, full, sliding, full, sliding, full, sliding}},
              {"query_pre_attn_scalar", 14},
              {"attn_logit_softcapping", 50.0},  // Gemma 2's, where a file says nothing
              {"final_logit_softcapping", 30.0}});
  File gemma3("gemma3");
  expect_has(expect_same_model(gemma3), {{"layer_types", {sliding, sliding, sliding, sliding, sliding, full, sliding}},
                                         {"rope_local_base_freq", 10000.0},
                                         {"attn_logit_softcapping", nullptr},
                                         {"final_logit_softcapping", nullptr}});
  gemma3.set("rope.freq_base_swa", real(432.1f));
  expect_has(expect_same_model(gemma3), {{"rope_local_base_freq", 432.1}, {"rope_theta", 54321.5}});
}

TEST(ConfigText, CapsAndScalesOfScores) {
  File file("gemma2");
  file.set("attn_logit_softcapping", real(12.7f)).set("final_logit_softcapping", real(0));
  file.set("attention.scale", real(static_cast<float>(1 / std::sqrt(33.0))));
  expect_has(expect_same_model(file),
             {{"attn_logit_softcapping", 12.7}, {"final_logit_softcapping", nullptr}, {"query_pre_attn_scalar", 33}});
  File large("gemma2");  // which scales by the width
  large.set("block_count", whole(46));
  expect_has(expect_same_model(large), {{"query_pre_attn_scalar", 10}, {"head_dim", 14}});
}

TEST(ConfigText, BiasesAreSettingsOfTheirClasses) {
  const auto with = [](const char* architecture, const std::vector<const char*>& names) {
    File file(architecture);
    for (const char* name : names) file.add(floats(formats::joined("blk.0.", name, ".bias"), {3}));
    return file;
  };
  expect_has(with("llama", {}).json(), {{"attention_bias", false}, {"mlp_bias", false}});
  expect_has(with("llama", {"attn_q", "attn_output"}).json(), {{"attention_bias", true}, {"mlp_bias", false}});
  expect_has(with("llama", {"ffn_down"}).json(), {{"attention_bias", false}, {"mlp_bias", true}});
  expect_has(with("qwen3", {"attn_v"}).json(), {{"attention_bias", true}});
  EXPECT_FALSE(with("qwen2", {"attn_q", "attn_k", "attn_v"}).json().contains("attention_bias"));
  for (const File& file : {with("qwen2", {"attn_output"}), with("gemma3", {"ffn_up"}),
                           with("llama", {"attn_q"}).set("attention.sliding_window", whole(9))})
    EXPECT_NE(file.sentence().find("expected biases that "), std::string::npos) << file.sentence();
}

TEST(ConfigText, ScaledRotations) {
  for (const char* architecture : {"llama", "qwen3", "gemma3", "bitnet"}) {
    SCOPED_TRACE(architecture);
    File linear(architecture);
    linear.set("rope.scaling.type", text("linear")).set("rope.scaling.factor", real(2.6f));
    expect_has(expect_same_model(linear), {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.6}}}});
    File yarn(architecture);
    yarn.yarn(3.3f);
    expect_has(expect_same_model(yarn), {{"rope_scaling",
                                          {{"rope_type", "yarn"},
                                           {"factor", 3.3},
                                           {"original_max_position_embeddings", 600},
                                           {"beta_fast", 16.1},
                                           {"beta_slow", 2.0}}}});
  }
  File plain("llama");
  plain.set("rope.scaling.type", text("none")).set("rope.scaling.factor", real(8));
  EXPECT_FALSE(expect_same_model(plain).contains("rope_scaling"));
  File short_yarn("llama");  // its original context is context / factor
  short_yarn.set("rope.scaling.type", text("yarn")).set("rope.scaling.factor", real(2));
  expect_has(expect_same_model(short_yarn).at("rope_scaling"),
             {{"original_max_position_embeddings", 617}, {"beta_fast", 32.0}, {"beta_slow", 1.0}});
}

TEST(ConfigText, DivisorsOfLlama3AreRecognised) {
  struct Case {
    float factor, base, original;
    std::int64_t head;
  };
  for (const auto& [factor, base, original, head] :
       {Case{8, 5e5f, 8192, 128}, Case{32, 5e5f, 8192, 64}, Case{4, 1e4f, 8192, 96}, Case{2, 5e5f, 2048, 20},
        Case{8, 500, 32, 16}, Case{20, 1e6f, 65536, 128}}) {
    SCOPED_TRACE(formats::joined(factor, ", ", base, ", ", original, ", ", head));
    File file("llama");
    file.set("attention.key_length", whole(static_cast<std::uint64_t>(head))).set("rope.freq_base", real(base));
    file.add(
        floats("rope_freqs.weight", {head / 2}, divisors(factor, base, original, static_cast<std::size_t>(head / 2))));
    expect_has(expect_same_model(file, 2e-6), {{"rope_scaling",
                                                {{"rope_type", "llama3"},
                                                 {"factor", factor},
                                                 {"low_freq_factor", 1.0},
                                                 {"high_freq_factor", 4.0},
                                                 {"original_max_position_embeddings", original}}}});
  }
}

TEST(ConfigText, DivisorsThatNoConfigurationHasAreRefused) {
  const auto refused = [](const std::vector<float>& values) {
    File file("llama");
    file.set("rope.freq_base", real(5e5f)).add(floats("rope_freqs.weight", {7}, values));
    return file.sentence();
  };
  std::vector<float> values = divisors(8, 5e5f, 8192, 7);
  EXPECT_EQ(refused(values), "");
  values[4] *= 1.00001f;
  EXPECT_EQ(refused(values),
            "GGUF file small.gguf: expected divisors of rotations that the scaling llama3 has, got others in "
            "\"rope_freqs.weight\"");
  EXPECT_NE(refused({1, 2, 3, 4, 5, 6, 7}), "");
  EXPECT_NE(refused({8, 8, 8, 8, 8, 8, 8}), "");
}

TEST(ConfigText, RefusalsSayWhatIsExpectedAndGot) {
  const std::pair<File, const char*> cases[] = {
      {File("mamba"), "expected an architecture among llama, "},
      {File("llama").set("rope.dimension_count", whole(8)), "expected rotations of all 14 elements of a head, got 8"},
      {File("qwen2").set("attention.sliding_window", whole(9)),
       "expected no windows in layers of Qwen2ForCausalLM, got windows of 9"},
      {File("gemma3").set("attention.sliding_window", whole(0)),
       "expected windows in layers of Gemma3ForCausalLM, got none"},
      {File("bitnet").set("hidden_activation", text("relu2")),
       "expected the activation silu of BitnetForCausalLM, got relu2"},
      {File("llama").set("attention.scale", real(0.5f)),
       "expected scores times 1 / sqrt(head_dim), got scores times 0.5"},
      {File("gemma2").set("attention.scale", real(0.3f)),
       "expected scores times 1 / sqrt(a whole number), got scores times 0.3"},
      {File("gemma2").set("attention.scale", real(1e-30f)), "expected scores times 1 / sqrt(a whole number), got "},
      {File("gemma2")
           .set("block_count", whole(46))
           .set("attention.scale", real(static_cast<float>(1 / std::sqrt(14.0)))),
       "expected scores times 0.316228, got scores times 0.267261"},
      {File("llama").set("rope.freq_base", {Type::f64, 54321.1}),
       "expected settings of rotations that are floats of 32 bits, got others"},
      {File("llama").yarn(2).set("rope.scaling.original_context_length", real(600.5f)),
       "expected a whole number of positions before the scaling yarn, got 600.5"},
      {File("llama").yarn(0.5f), "expected a factor of at least 1 of the scaling yarn, got 0.5"},
      {File("llama").yarn(2).add(floats("rope_freqs.weight", {7}, {1, 1, 1, 1, 1, 1, 1})),
       "expected one scaling of rotations, got \"rope_freqs.weight\" beside yarn"},
  };
  for (const auto& [file, sentence] : cases) {
    const std::string found = file.sentence();
    EXPECT_NE(found.find(sentence), std::string::npos) << "expected " << sentence << ", got " << found;
    EXPECT_TRUE(found.starts_with("GGUF file small.gguf: ")) << found;
  }
}

TEST(ConfigText, ABitNetMayBeGatedBySilu) {
  expect_has(expect_same_model(File("bitnet-b1.58").set("hidden_activation", text("silu"))), {{"hidden_act", "silu"}});
}

}  // namespace
}  // namespace bie::llm::folder
