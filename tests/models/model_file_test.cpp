// A saved model predicts the same bits when loaded, the live one is left alone, and files of
// the first format version still load.
#include "bie/models/model_file.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "bie/data/checksum.h"
#include "bie/data/tensor_files.h"
#include "tests/models/trained_model.h"
#include "tests/support/scratch.h"

namespace bie::models::test {
namespace {

using bie::test::Scratch;

constexpr SavedForm forms[] = {SavedForm::packed, SavedForm::training};

TEST(ModelFile, ALoadedModelGivesTheSameBits) {
  const Scratch scratch;
  for (const ModelConfig& config : every_model())
    for (const SavedForm form : forms) {
      SCOPED_TRACE(describe(config) + (form == SavedForm::packed ? ", packed" : ", training"));
      const auto model = trained(config);
      save_model(*model, scratch.path("m"), form);
      const auto loaded = load_classifier(scratch.path("m"));
      EXPECT_FALSE(loaded->is_training());
      EXPECT_TRUE(logits(*loaded).equal(logits(*model)));
      EXPECT_TRUE(informative(logits(*loaded)));
      EXPECT_EQ(config_json(loaded->config()), config_json(config));
      EXPECT_EQ(loaded->weight_count(), model->weight_count());
      EXPECT_EQ(loaded->quantised_count(), model->quantised_count());
      for (std::size_t i = 0; i < model->quant_layers().size(); ++i)
        EXPECT_STREQ(loaded->quant_layers()[i]->weight_form(),
                     form == SavedForm::packed ? "packed" : model->quant_layers()[i]->weight_form());
      save_model(*loaded, scratch.path("again"), form);
      EXPECT_EQ(bie::test::read_file(scratch.path("m")), bie::test::read_file(scratch.path("again")));
    }
}

TEST(ModelFile, LoadingDrawsNoRandomNumbers) {
  const Scratch scratch;
  const at::Generator generator = at::detail::getDefaultCPUGenerator();
  for (const ModelConfig& config : every_model())
    for (const SavedForm form : forms) {
      SCOPED_TRACE(describe(config));
      save_model(*trained(config), scratch.path("m"), form);
      const at::Tensor before = generator.get_state();
      load_classifier(scratch.path("m"));
      EXPECT_TRUE(generator.get_state().equal(before));
      make_model(config);
      EXPECT_FALSE(generator.get_state().equal(before)) << "a model that is not loaded does draw";
    }
}

/// Counts what torch allocates on this thread.
struct Allocations : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device) override {
    if (size > 0) bytes += size;
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t bytes = 0;
};

TEST(ModelFile, APackedModelIsLoadedWithoutFloats) {
  const Scratch scratch;
  for (const int bits : {8, 4, 1}) {
    save_model(*make_model({"mlp", bits, {1, 8, 8}, 10, 512, 3}), scratch.path("m"));
    const auto allocations = std::make_shared<Allocations>();
    std::shared_ptr<Classifier> model;
    {
      const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, allocations);
      model = load_classifier(scratch.path("m"));
    }
    const auto file = static_cast<std::int64_t>(std::filesystem::file_size(scratch.path("m")));
    EXPECT_GT(allocations->bytes, file / 2) << bits;
    EXPECT_LT(allocations->bytes, file * 5 / 4) << bits;
  }
}

TEST(ModelFile, ATrainingFileTrainsOn) {
  const Scratch scratch;
  for (const ModelConfig& config : every_model()) {
    SCOPED_TRACE(describe(config));
    const auto model = trained(config);
    save_model(*model, scratch.path("m"), SavedForm::training);
    const auto loaded = load_classifier(scratch.path("m"));
    for (const auto& m : {model, loaded}) train_a_step(*m, 5);
    EXPECT_TRUE(logits(*loaded).equal(logits(*model)));
    expect_same(state(*loaded), state(*model));
  }
}

TEST(ModelFile, SavingLeavesTheLiveModelAlone) {
  const Scratch scratch;
  for (const ModelConfig& config : every_model())
    for (const SavedForm form : forms) {
      SCOPED_TRACE(describe(config));
      const auto saved = trained(config), alone = trained(config);
      const auto before = state(*saved);
      save_model(*saved, scratch.path("m"), form);
      EXPECT_TRUE(saved->is_training());
      expect_same(before, state(*saved));
      for (const auto& model : {saved, alone}) train_a_step(*model, 4);
      expect_same(state(*alone), state(*saved));
      EXPECT_TRUE(logits(*saved).equal(logits(*alone)));
      save_model(*saved, scratch.path("m"), form);
      EXPECT_FALSE(saved->is_training());
      EXPECT_TRUE(logits(*load_classifier(scratch.path("m"))).equal(logits(*alone)));
    }
}

TEST(ModelFile, AFileOfTheFirstVersionLoads) {
  const Scratch scratch;
  for (const char* arch : {"mlp", "lenet"})
    for (const int bits : {8, 4}) {
      ModelConfig config{arch, bits, {2, 17, 20}, 4, 33};
      if (config.arch == "mlp") config.depth = 2;
      const auto model = trained(config);
      save_model(*model, scratch.path("m"));
      auto file = data::load_safetensors(scratch.path("m"));
      file.metadata = {{"bie", nlohmann::json{{"format_version", 1},
                                              {"arch", arch},
                                              {"bits", bits},
                                              {"image", {2, 17, 20}},
                                              {"classes", 4},
                                              {"hidden", 33},
                                              {"depth", 2}}
                                   .dump()}};
      for (const auto& [name, layer] : layers::quant_layers(*model))
        ASSERT_EQ(file.tensors.erase(name + ".eps"), 1u) << name;
      data::save_safetensors(scratch.path("old"), file.tensors, file.metadata);
      EXPECT_TRUE(logits(*load_classifier(scratch.path("old"))).equal(logits(*model))) << arch << bits;
    }
}

TEST(ModelFile, AFileOfTheSecondVersionLoads) {
  const Scratch scratch;
  const auto model = trained({"lenet", 4, {2, 17, 20}, 4, 33});
  save_model(*model, scratch.path("m"));
  auto file = data::load_safetensors(scratch.path("m"));
  auto json = nlohmann::json::parse(file.metadata.at("bie"));
  json["format_version"] = 2;
  ASSERT_EQ(json.erase("linear_bits"), 1u);
  file.metadata["bie"] = json.dump();
  file.metadata["crc32"] = std::to_string(data::checksum(file.tensors, json.dump()));
  data::save_safetensors(scratch.path("old"), file.tensors, file.metadata);
  EXPECT_TRUE(logits(*load_classifier(scratch.path("old"))).equal(logits(*model)));
}

TEST(ModelFile, AVggSmallComesBack) {
  const Scratch scratch;
  const auto model =
      trained({.arch = "vgg-small", .bits = 8, .image = {3, 8, 8}, .classes = 4, .hidden = 33, .linear_bits = 1});
  for (const SavedForm form : forms) {
    save_model(*model, scratch.path("m"), form);
    EXPECT_TRUE(logits(*load_classifier(scratch.path("m"))).equal(logits(*model)));
  }
}

TEST(ModelFile, ConfigurationsAreReadBack) {
  for (const ModelConfig& config : every_model()) {
    const std::string json = config_json(config);
    const ModelConfig read = parse_config(json);
    EXPECT_EQ(config_json(read), json);
    EXPECT_EQ(read.weights, config.weights);
    EXPECT_EQ(read.norm, config.norm);
    EXPECT_EQ(read.quantise_first, config.quantise_first);
    EXPECT_EQ(read.image, config.image);
    EXPECT_EQ(read.linear_bits, config.linear_bits);
    EXPECT_EQ(layer_names(read), layer_names(config));
    EXPECT_EQ(weight_count(read), weight_count(config));
    EXPECT_EQ(read.channel_scales, config.channel_scales);
  }
}

TEST(ModelFile, TheOldestVersionThatDescribesAModelIsWritten) {
  ModelConfig config{"mlp", 8, {1, 7, 5}, 3, 33, 1};
  const auto version = [&] { return nlohmann::json::parse(config_json(config))["format_version"].get<int>(); };
  EXPECT_EQ(version(), 3);
  config.class_names = {"a", "b", "c"};
  EXPECT_EQ(version(), 3) << "older builds pass over it";
  EXPECT_EQ(parse_config(config_json(config)).class_names, config.class_names);
  config.normalise = true;
  EXPECT_EQ(version(), 4);
  config.bits_of = {{"head", 8}, {"block0", 4}};
  const ModelConfig read = parse_config(config_json(config));
  EXPECT_EQ(read.bits_of, config.bits_of);
  EXPECT_TRUE(read.normalise);
  config.channel_scales = true;
  EXPECT_EQ(version(), 5);
  config = {.arch = "vgg-small", .image = {3, 8, 8}, .depth = 2, .width = 128};
  EXPECT_EQ(version(), 3) << "its own sizes";
  config.width = 64;
  EXPECT_EQ(version(), 5);
  config = {.arch = "resnet20", .image = {3, 8, 8}, .depth = 5};
  EXPECT_EQ(version(), 5);
}

// Older builds wrote the depth of an mlp into the files of all nets.
TEST(ModelFile, TheDepthOfAnOldFileIsThatOfAnMlp) {
  for (const auto& [arch, depth] : {std::pair<const char*, int>{"mlp", 7}, {"vgg-small", 2}, {"resnet20", 3}}) {
    const ModelConfig config{.arch = arch, .image = {3, 8, 8}};
    auto json = nlohmann::json::parse(config_json(config));
    ASSERT_EQ(json["format_version"], 3);
    json["depth"] = 7;
    ModelConfig wanted = config;
    wanted.depth = depth;
    EXPECT_EQ(layer_names(parse_config(json.dump())), layer_names(wanted)) << arch;
  }
}

TEST(ModelFile, WeightsArePackedOnDisk) {
  const Scratch scratch;
  const auto size_of = [&](int bits) {
    const auto model = make_model({"mlp", bits, {1, 8, 8}, 10, 257, 3});
    save_model(*model, scratch.path("m"));
    return static_cast<std::int64_t>(std::filesystem::file_size(scratch.path("m")));
  };
  const std::int64_t h = 257;
  // First layer, head with its bias, four norms of 4 numbers a channel and a step counter, four PReLUs.
  const std::int64_t full = 4 * (64 * h + 10 * h + 10 + 4 * 4 * h + 4) + 8 * 4;
  // bias_a, two scales and eps a quantised layer
  const std::int64_t extra = 3 * 4 * (h + 3);
  const std::int64_t header = 8192;
  const std::int64_t wanted[][2] = {{32, full + 3 * 4 * h * h},
                                    {8, full + extra + 3 * h * h},
                                    {4, full + extra + 3 * h * ((h + 1) / 2)},
                                    {1, full + extra - 3 * 4 + 3 * h * ((h + 7) / 8)}};
  for (const auto& [bits, bytes] : wanted) {
    EXPECT_GE(size_of(static_cast<int>(bits)), bytes) << bits;
    EXPECT_LE(size_of(static_cast<int>(bits)), bytes + header) << bits;
  }
  EXPECT_LT(5 * size_of(1), size_of(32));
}

TEST(ModelFile, MetadataSayWhatTheModelIs) {
  const Scratch scratch;
  save_model(*make_model({"lenet", 4, {2, 17, 20}, 4, 33}), scratch.path("m"));
  const auto file = data::load_safetensors(scratch.path("m"));
  ASSERT_EQ(file.metadata.count("bie"), 1u);
  EXPECT_EQ(nlohmann::json::parse(file.metadata.at("bie")), nlohmann::json::parse(R"({
    "format_version": 3, "arch": "lenet", "bits": 4, "image": [2, 17, 20], "classes": 4, "hidden": 33, "depth": 1,
    "norm": true, "quantise_first": false, "weights": "usual",
    "linear_bits": 0})"));
  EXPECT_EQ(file.metadata.at("crc32"), std::to_string(data::checksum(file.tensors, file.metadata.at("bie"))));
}

TEST(ModelFile, NamesAreThoseOfTheStateDict) {
  const Scratch scratch;
  const auto model = trained({"mlp", 1, {1, 7, 5}, 3, 33, 1});
  save_model(*model, scratch.path("m"));
  const auto file = data::load_safetensors(scratch.path("m"));
  auto wanted = state(*model);
  wanted.erase("block1.product.weight");
  wanted["block1.product.qweight"] = ops::pack_signs(model->quant_layers()[0]->weight);
  expect_same(wanted, file.tensors);
}

}  // namespace
/// A model of a kind that this build does not know by itself.
class Table : public Model {
 public:
  explicit Table(std::int64_t rows) : rows_(rows) { table_ = register_parameter("table", at::zeros({rows, 3})); }
  at::Tensor forward(const at::Tensor& x) override { return table_.index_select(0, x); }
  const char* kind() const override { return "table"; }
  std::string description() const override { return "{\"rows\":" + std::to_string(rows_) + "}"; }

  at::Tensor table_;

 private:
  std::int64_t rows_;
};

std::shared_ptr<Model> make_table(const std::string& description, std::int64_t bytes) {
  return std::make_shared<Table>(description.find("\"rows\":2") != std::string::npos ? bytes / 12 : 1);
}

TEST(ModelFile, AModelOfAnotherKindIsAFileToo) {
  const bie::test::Scratch scratch;
  Table table(2);
  table.table_.detach().copy_(at::arange(6).view({2, 3}));
  save_model(table, scratch.path("m"));
  std::vector<ModelKind> kinds = model_kinds();
  kinds.push_back({"table", make_table});
  const auto loaded = load_model(scratch.path("m"), kinds);
  EXPECT_STREQ(loaded->kind(), "table");
  EXPECT_TRUE(loaded->forward(at::ones({1}, at::kLong)).equal(at::arange(3, 6, at::kFloat).view({1, 3})));
  EXPECT_FALSE(loaded->is_training());
  bie::test::expect_sentence(bie::test::refusal([&] { load_model(scratch.path("m")); }), scratch.path("m"),
                             "the kind of model is \"table\", which this build does not know");
}

}  // namespace bie::models::test
