// A saved model predicts the same bits when loaded, the live one is left alone, and a file that is not whole is
// refused.
#include "bie/nn/model_file.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "bie/io/safetensors.h"
#include "tests/io/scratch.h"
#include "tests/nn/every_layer.h"

namespace bie::nn::test {
namespace {

using io::test::expect_sentence;
using io::test::refusal;
using io::test::Scratch;

std::vector<ModelConfig> every_model() {
  std::vector<ModelConfig> configs;
  for (const int bits : {32, 8, 4, 1}) configs.push_back({"mlp", bits, {1, 7, 5}, 3, 33, 2});
  for (const int bits : {32, 8, 4}) configs.push_back({"lenet", bits, {2, 17, 20}, 4, 33, 1});
  return configs;
}

std::string describe(const ModelConfig& c) { return c.arch + " of " + std::to_string(c.bits) + " bits"; }

at::Tensor images(const ModelConfig& c, std::uint64_t seed = 1) {
  return numbers({6, c.image[0], c.image[1], c.image[2]}, seed);
}

void train_a_step(Classifier& model, std::uint64_t seed) {
  model.train();
  model.zero_grad();
  const at::Tensor y = model.forward(images(model.config(), seed));
  y.mul(numbers(y.sizes(), seed + 50)).sum().backward();
  const at::NoGradGuard no_grad;
  for (auto& item : model.named_parameters()) {
    at::Tensor& p = item.value();
    if (p.scalar_type() == at::kChar)
      p.mul_(p.grad().ge(0).mul(2).sub(1).to(at::kChar));
    else
      p.add_(p.grad(), -1e-3);
  }
}

/// A model whose every tensor has left its initial value.
std::shared_ptr<Classifier> trained(const ModelConfig& config) {
  at::manual_seed(8);
  const auto model = make_model(config);
  for (const std::uint64_t seed : {1, 2, 3}) train_a_step(*model, seed);
  return model;
}

at::Tensor logits(Classifier& model) {
  const at::NoGradGuard no_grad;
  model.eval();
  return model.forward(images(model.config(), 9));
}

std::map<std::string, at::Tensor> state(const Classifier& model) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : model.named_parameters()) tensors[item.key()] = item.value().detach().clone();
  for (const auto& item : model.named_buffers()) tensors[item.key()] = item.value().detach().clone();
  return tensors;
}

void expect_same(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    ASSERT_EQ(b.count(name), 1u) << name;
    EXPECT_TRUE(tensor.equal(b.at(name))) << name;
  }
}

TEST(ModelFile, ALoadedModelGivesTheSameBits) {
  const Scratch scratch;
  for (const ModelConfig& config : every_model()) {
    const auto model = trained(config);
    save_model(*model, scratch.path("m"));
    const auto loaded = load_model(scratch.path("m"));
    EXPECT_FALSE(loaded->is_training());
    EXPECT_TRUE(logits(*loaded).equal(logits(*model))) << describe(config);
    EXPECT_TRUE(logits(*loaded).ne(0).any().item<bool>());
    EXPECT_EQ(loaded->config().hidden, config.hidden);
    EXPECT_EQ(loaded->config().depth, config.depth);
    EXPECT_EQ(loaded->config().image, config.image);
    EXPECT_EQ(loaded->weight_count(), model->weight_count());
    EXPECT_EQ(loaded->quantised_count(), model->quantised_count());
    save_model(*loaded, scratch.path("again"));
    EXPECT_EQ(io::test::read_file(scratch.path("m")), io::test::read_file(scratch.path("again"))) << describe(config);
  }
}

TEST(ModelFile, SavingLeavesTheLiveModelAlone) {
  const Scratch scratch;
  for (const ModelConfig& config : every_model()) {
    const auto saved = trained(config), alone = trained(config);
    const auto before = state(*saved);
    save_model(*saved, scratch.path("m"));
    EXPECT_TRUE(saved->is_training());
    expect_same(before, state(*saved));
    for (const auto& model : {saved, alone}) train_a_step(*model, 4);
    expect_same(state(*alone), state(*saved));
    EXPECT_TRUE(logits(*saved).equal(logits(*alone)));
    save_model(*saved, scratch.path("m"));
    EXPECT_FALSE(saved->is_training());
    EXPECT_TRUE(logits(*load_model(scratch.path("m"))).equal(logits(*alone))) << describe(config);
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
  // bias_a and two scales a quantised layer
  const std::int64_t extra = 3 * 4 * (h + 2);
  const std::int64_t header = 8192;
  const std::int64_t wanted[][2] = {{32, full + 3 * 4 * h * h},
                                    {8, full + extra + 3 * h * h},
                                    {4, full + extra + 3 * h * ((h + 1) / 2)},
                                    {1, full + extra + 3 * h * ((h + 7) / 8)}};
  for (const auto& [bits, bytes] : wanted) {
    EXPECT_GE(size_of(static_cast<int>(bits)), bytes) << bits;
    EXPECT_LE(size_of(static_cast<int>(bits)), bytes + header) << bits;
  }
  EXPECT_LT(5 * size_of(1), size_of(32));
}

TEST(ModelFile, MetadataSayWhatTheModelIs) {
  const Scratch scratch;
  save_model(*make_model({"lenet", 4, {2, 17, 20}, 4, 33, 7}), scratch.path("m"));
  const auto file = io::load_safetensors(scratch.path("m"));
  ASSERT_EQ(file.metadata.count("bie"), 1u);
  EXPECT_EQ(nlohmann::json::parse(file.metadata.at("bie")), nlohmann::json::parse(R"({
    "format_version": 1, "arch": "lenet", "bits": 4, "image": [2, 17, 20], "classes": 4, "hidden": 33, "depth": 7})"));
}

TEST(ModelFile, NamesAreThoseOfTheStateDict) {
  const Scratch scratch;
  const auto model = trained({"mlp", 1, {1, 7, 5}, 3, 33, 1});
  save_model(*model, scratch.path("m"));
  const auto file = io::load_safetensors(scratch.path("m"));
  auto wanted = state(*model);
  wanted.erase("block1.product.weight");
  wanted["block1.product.qweight"] = ops::pack_signs(model->quant_layers()[0]->weight);
  expect_same(wanted, file.tensors);
}

/// Files made from a good one by changing its tensors or metadata.
class Tampered : public testing::Test {
 protected:
  Tampered() {
    save_model(*trained({"mlp", 4, {1, 7, 5}, 3, 33, 1}), path());
    file_ = io::load_safetensors(path());
  }
  std::string path() const { return scratch_.path("m"); }
  void expect_refused(const std::string& part) {
    io::save_safetensors(path(), file_.tensors, file_.metadata);
    expect_sentence(refusal([&] { load_model(path()); }), path(), part);
    file_ = good_;
  }
  void SetUp() override { good_ = file_; }

  Scratch scratch_;
  io::SafetensorsFile file_, good_;
};

const char* const entries[] = {
    "block0.product.weight",  "block0.norm.running_mean", "block1.product.qweight", "block1.product.scale_a",
    "block1.product.scale_w", "block1.product.bias_a",    "block1.act.weight",      "head.bias"};

TEST_F(Tampered, AMissingEntryIsNamed) {
  for (const std::string name : entries) {
    ASSERT_EQ(file_.tensors.erase(name), 1u) << name;
    expect_refused("'" + name + "' is missing");
  }
}

TEST_F(Tampered, AnEntryTooManyIsNamed) {
  for (const std::string name : {"a", "zz.weight", "block1.product.weight", "block1.product.zeros"}) {
    file_.tensors[name] = at::zeros({1});
    expect_refused("'" + name + "'");
  }
}

TEST_F(Tampered, AWrongShapeIsNamed) {
  for (const std::string name : entries) {
    at::Tensor& tensor = file_.tensors.at(name);
    const std::string right = c10::str(tensor.sizes());
    tensor = at::zeros({2, 3, 4}, tensor.options());
    expect_refused("'" + name + "'");
    file_.tensors.at(name) = at::zeros({2, 3, 4}, good_.tensors.at(name).options());
    expect_refused("[2, 3, 4]");
    file_.tensors.at(name) = at::zeros({2, 3, 4}, good_.tensors.at(name).options());
    expect_refused(right);
  }
}

TEST_F(Tampered, AWrongDtypeIsNamed) {
  for (const std::string name : entries) {
    file_.tensors.at(name) = file_.tensors.at(name).to(at::kShort);
    expect_refused("'" + name + "'");
    file_.tensors.at(name) = file_.tensors.at(name).to(at::kShort);
    expect_refused("Short");
  }
}

TEST_F(Tampered, MetadataAreNeeded) {
  file_.metadata.clear();
  expect_refused("metadata entry 'bie'");
  file_.metadata = {{"other", file_.metadata["bie"]}};
  expect_refused("metadata entry 'bie'");
  for (const char* text : {"", "no JSON", "{\"format_version\": 1", "[1]", "1", "\"mlp\""}) {
    file_.metadata["bie"] = text;
    expect_refused("not a JSON object");
  }
}

TEST_F(Tampered, MetadataAreCheckedOneByOne) {
  const auto with = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json json = nlohmann::json::parse(file_.metadata.at("bie"));
    if (value.is_null())
      json.erase(key);
    else
      json[key] = value;
    file_.metadata["bie"] = json.dump();
  };
  for (const char* key : {"format_version", "arch", "bits", "image", "classes", "hidden", "depth"}) {
    with(key, nullptr);
    expect_refused(key);
    with(key, nlohmann::json::object());
    expect_refused("incomplete");
  }
  with("image", {1, 7});
  expect_refused("incomplete");
  with("format_version", 2);
  expect_refused("format version 2");
  with("format_version", 0);
  expect_refused("format version 0");
  with("bits", 3);
  expect_refused("bits is 3");
  with("arch", "x");
  expect_refused("'x'");
  with("hidden", -1);
  expect_refused("-1");
  with("hidden", 1 << 20);
  expect_refused("the file holds");
  with("hidden", 34);
  expect_refused("block0");
  with("depth", 2);
  expect_refused("block2");
  with("bits", 8);
  expect_refused("block1.product.qweight");
}

TEST_F(Tampered, ATruncatedFileIsRefused) {
  const std::string bytes = io::test::read_file(path());
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{5}, std::size_t{100}, bytes.size() / 2, bytes.size() - 1}) {
    io::test::write_file(path(), bytes.substr(0, length));
    EXPECT_NE(refusal([&] { load_model(path()); }).find(path()), std::string::npos) << length;
  }
  EXPECT_NE(refusal([&] { load_model(scratch_.path("none")); }).find(scratch_.path("none")), std::string::npos);
}

TEST_F(Tampered, AFileThatCannotBeWrittenLeavesTheModelAlone) {
  const auto model = trained({"mlp", 4, {1, 7, 5}, 3, 33, 1});
  const at::Tensor before = logits(*model);
  const std::string nowhere = scratch_.path("no folder/m");
  EXPECT_NE(refusal([&] { save_model(*model, nowhere); }).find(nowhere), std::string::npos);
  EXPECT_TRUE(logits(*model).equal(before));
}

}  // namespace
}  // namespace bie::nn::test
