// Model files that were changed after they were written: one sentence that names the file and what is wrong.
#include <ATen/ops/zeros.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "bie/data/checksum.h"
#include "bie/data/tensor_files.h"
#include "bie/models/model_file.h"
#include "tests/models/trained_model.h"
#include "tests/support/scratch.h"

namespace bie::models::test {
namespace {

using bie::test::expect_sentence;
using bie::test::refusal;
using bie::test::Scratch;

/// Files made from a good one by changing its tensors or metadata.
class Tampered : public testing::Test {
 protected:
  Tampered() {
    save_model(*trained({"mlp", 4, {1, 7, 5}, 3, 33, 1}), path());
    file_ = data::load_safetensors(path());
  }
  std::string path() const { return scratch_.path("m"); }
  void expect_refused(const std::string& part) {
    data::save_safetensors(path(), file_.tensors, file_.metadata);
    expect_sentence(refusal([&] { load_model(path()); }), path(), part);
    file_ = good_;
  }
  void SetUp() override { good_ = file_; }

  Scratch scratch_;
  data::SafetensorsFile file_, good_;
};

const char* const entries[] = {
    "block0.product.weight",  "block0.norm.running_mean", "block1.product.qweight", "block1.product.scale_a",
    "block1.product.scale_w", "block1.product.bias_a",    "block1.act.weight",      "head.bias"};

TEST_F(Tampered, AMissingEntryIsNamed) {
  for (const std::string name : entries) {
    ASSERT_EQ(file_.tensors.erase(name), 1u) << name;
    expect_refused(name == "block1.product.qweight" ? "(or '" + name + "') is missing" : "'" + name + "' is missing");
  }
}

TEST_F(Tampered, AnEntryTooManyIsNamed) {
  for (const std::string name : {"a", "zz.weight", "block0.product.qweight", "block1.product.zeros"}) {
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
    expect_refused(right == "[]" ? "expected one floating-point number, got" : right);
  }
}

TEST_F(Tampered, AWrongDtypeIsNamed) {
  for (const std::string name : entries) {
    file_.tensors.at(name) = file_.tensors.at(name).to(at::kShort);
    expect_refused("'" + name + "'");
    file_.tensors.at(name) = file_.tensors.at(name).to(at::kShort);
    expect_refused("int16");
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

TEST_F(Tampered, MetadataAreOneBoundedObject) {
  const std::string good = file_.metadata.at("bie");
  const std::string open = good.substr(0, good.size() - 1), deep = std::string(100000, '[') + std::string(100000, ']');
  for (const std::string& text : {open + ", \"more\": " + deep + "}", open + ", \"layers\": " + deep + "}",
                                  open + ", \"arch\": \"mlp\"}", good + std::string("\0 ", 2), good + "{}"}) {
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
  for (const char* key : {"format_version", "arch", "bits", "image", "classes", "hidden", "depth", "norm",
                          "quantise_first", "weights", "linear_bits"}) {
    with(key, nullptr);
    expect_refused(key);
    with(key, nlohmann::json::object());
    expect_refused(std::string(key) + ": expected ");
    with(key, nlohmann::json::object());
    expect_refused(", got an object");
  }
  with("image", {1, 7});
  expect_refused("image: expected an array of 3 whole numbers, got another");
  with("image", {1, 7, 5, 1});
  expect_refused("image: expected an array of 3 whole numbers, got another");
  with("bits", (std::int64_t{1} << 32) + 4);
  expect_refused("bits: expected a whole number, got 4294967300");
  with("format_version", (std::int64_t{1} << 32) + 3);
  expect_refused("format_version: expected a whole number, got 4294967299");
  with("norm", 1);
  expect_refused("norm: expected true or false, got 1");
  with("image", {1, 4096, 65536});
  expect_refused("an image: expected at most 67108864 values, got [1, 4096, 65536]");
  with("format_version", 8);
  expect_refused("format version 8, this build reads up to 7");
  for (const char* key : {"bits_of", "normalise"}) {
    with("format_version", 4);
    with("bits_of", nlohmann::json::object());
    with("normalise", false);
    with(key, nullptr);
    expect_refused(key);
  }
  for (const char* key : {"width", "channel_scales"}) {
    with("format_version", 5);
    with("bits_of", nlohmann::json::object());
    with("normalise", false);
    with("width", 0);
    with("channel_scales", false);
    with(key, nullptr);
    expect_refused(key);
  }
  with("width", 64);
  expect_refused("width is 64, but mlp has no width");
  with("class_names", {"one", "two"});
  expect_refused("class_names");
  with("layers", {{{"type", "cone"}}});
  expect_refused("cone");
  with("format_version", 0);
  expect_refused("format version 0");
  with("weights", "some");
  expect_refused("'some'");
  with("hidden", 33.5);
  expect_refused("hidden: expected a whole number, got 33.5");
  with("image", {1, 7.5, 5});
  expect_refused("image: expected an array of 3 whole numbers, got another");
  with("bits", 3);
  expect_refused("bits: expected 32, 8, 4 or 1, got 3");
  with("linear_bits", 4);
  expect_refused("linear_bits is 4");
  with("arch", "x");
  expect_refused("'x'");
  with("hidden", -1);
  expect_refused("-1");
  with("hidden", 1 << 20);
  expect_refused("the file holds");
  with("hidden", 34);
  expect_refused("block1.product.bias_a");
  with("depth", 2);
  expect_refused("block2");
  with("bits", 8);
  expect_refused("block1.product.qweight");
}

// Every byte of the tensors counts; the header's are the format's own business.
TEST_F(Tampered, AFlippedBitIsRefused) {
  const std::string bytes = bie::test::read_file(path());
  const std::size_t header = 8 + static_cast<std::uint8_t>(bytes[0]) + 256u * static_cast<std::uint8_t>(bytes[1]);
  ASSERT_GT(bytes.size(), header);
  int refused = 0;
  for (std::size_t at = header; at < bytes.size(); at += 97) {
    std::string bad = bytes;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    bie::test::write_file(path(), bad);
    const std::string sentence = refusal([&] { load_model(path()); });
    ASSERT_NE(sentence.find(path()), std::string::npos) << at << ": " << sentence;
    refused += sentence.find("damaged") != std::string::npos;
  }
  EXPECT_GT(refused, 50);
}

TEST_F(Tampered, TheChecksumIsOfTensorsAndConfiguration) {
  file_.tensors.at("head.bias").add_(1);
  expect_refused("damaged");
  file_.metadata["crc32"] = "12";
  expect_refused("damaged");
  file_.metadata["crc32"] = "";
  expect_refused("damaged");
  file_.tensors["head.bias"] = good_.tensors.at("head.bias").clone().add_(1);
  file_.metadata["crc32"] = std::to_string(data::checksum(file_.tensors, file_.metadata.at("bie")));
  data::save_safetensors(path(), file_.tensors, file_.metadata);
  EXPECT_EQ(refusal([&] { load_model(path()); }), "");
  file_.metadata.erase("crc32");  // files of the first version have none
  data::save_safetensors(path(), file_.tensors, file_.metadata);
  EXPECT_EQ(refusal([&] { load_model(path()); }), "");
}

TEST_F(Tampered, CodesOutOfRangeAreRefused) {
  ModelConfig config{"mlp", 4, {1, 7, 5}, 3, 33, 1};
  config.weights = WeightForm::integer;
  save_model(*trained(config), path(), SavedForm::training);
  file_ = data::load_safetensors(path());
  file_.tensors.at("block1.product.weight")[3][4].fill_(8);
  expect_refused("the entry 'block1.product.weight' holds codes outside [-8, 7]");
}

TEST_F(Tampered, WhatIsNoNumberIsNamed) {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()})
    for (const std::string name :
         {"block0.product.weight", "block0.norm.running_mean", "block1.product.bias_a", "head.weight"}) {
      file_.tensors.at(name) = file_.tensors.at(name).clone();
      file_.tensors.at(name).view(-1)[1].fill_(value);
      expect_refused("the entry '" + name + "' holds NaN or infinity");
    }
}

TEST_F(Tampered, ANegativeVarianceIsNamed) {
  const std::string name = "block1.norm.running_var";
  file_.tensors.at(name) = file_.tensors.at(name).clone();
  file_.tensors.at(name)[3].fill_(-5);
  expect_refused("the entry '" + name + "' holds a negative variance");
}

TEST_F(Tampered, ATruncatedFileIsRefused) {
  const std::string bytes = bie::test::read_file(path());
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{5}, std::size_t{100}, bytes.size() / 2, bytes.size() - 1}) {
    bie::test::write_file(path(), bytes.substr(0, length));
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
}  // namespace bie::models::test
