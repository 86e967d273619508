// Nets described in JSON: what is read, what is built, and the line of what is wrong.
#include "bie/models/net_description.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "bie/models/model_file.h"
#include "tests/models/trained_model.h"
#include "tests/support/scratch.h"

namespace bie::models::test {
namespace {

using bie::test::expect_sentence;
using bie::test::refusal;
using bie::test::Scratch;
using bie::test::write_file;

constexpr const char* good = R"({
  "format_version": 1,
  "layers": [
    {"type": "conv", "out": 6, "kernel": 3, "padding": 1, "activation": "relu"},
    {"type": "pool", "size": 2},
    {"type": "conv", "out": 5, "kernel": 3, "stride": 2, "bits": 8, "activation": "none"},
    {"type": "linear", "out": 33}
  ]
})";

class NetDescription : public testing::Test {
 protected:
  ModelConfig load(const std::string& text, int bits = 4) {
    write_file(path_, text);
    ModelConfig config{.bits = bits, .image = {2, 9, 11}, .classes = 4};
    return load_net_description(path_, config);
  }
  void expect(const std::string& text, const std::string& part) {
    expect_sentence(refusal([&] { make_model(load(text)); }), path_, part);
  }
  const Scratch scratch_;
  const std::string path_ = scratch_.path("net.json");
};

TEST_F(NetDescription, TheNetIsTheOneDescribed) {
  const ModelConfig config = load(good);
  EXPECT_EQ(config.arch, "custom");
  EXPECT_EQ(layer_names(config), (std::vector<std::string>{"layer0", "layer2", "layer3", "head"}));
  const auto model = make_model(config);
  ASSERT_EQ(model->quant_layers().size(), 2u) << "the first and the last are float";
  EXPECT_EQ(model->quant_layers()[0]->weight_bits(), 8);
  EXPECT_EQ(model->quant_layers()[1]->weight_bits(), 4);
  // 9 x 11, pooled to 4 x 5, a convolution of stride 2 leaves 1 x 2.
  EXPECT_EQ(model->quant_layers()[1]->weight_shape(), (std::vector<std::int64_t>{33, 5 * 1 * 2}));
  EXPECT_EQ(weight_count(config), 2 * 6 * 9 + 6 * 5 * 9 + 10 * 33 + 33 * 4);
  EXPECT_EQ(logits(*model).sizes(), (std::vector<std::int64_t>{6, 4}));
}

TEST_F(NetDescription, TheFileRemembersIt) {
  for (const int bits : {32, 8, 4}) {
    const auto model = trained(load(good, bits));
    save_model(*model, scratch_.path("m"));
    const auto loaded = load_classifier(scratch_.path("m"));
    EXPECT_TRUE(logits(*loaded).equal(logits(*model))) << bits;
    EXPECT_EQ(layers_json(loaded->config().layers), layers_json(model->config().layers));
  }
}

TEST_F(NetDescription, LinearsAloneMayHaveOneBit) {
  const ModelConfig config = load(R"({"format_version": 1, "layers": [{"type": "linear", "out": 40, "bits": 32},
                                      {"type": "linear", "out": 30, "activation": "none"}]})",
                                  1);
  EXPECT_EQ(make_model(config)->quant_layers().size(), 1u);
  EXPECT_EQ(logits(*make_model(config)).size(1), 4);
}

std::string changed(const std::string& from, const std::string& to) {
  std::string text = good;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST_F(NetDescription, WhatIsWrongIsNamedWithItsLine) {
  expect("", "line 1: this is no JSON");
  expect("{\n\"format_version\": 1,\n\"layers\": [}", "line 3: this is no JSON");
  expect("[]", "the text is no JSON object");
  expect("{}", "has no format_version");
  expect(R"({"format_version": 1})", "there are no layers");
  expect(R"({"format_version": 1, "layers": []})", "layers is no array of 1 to 1000 layers");
  expect(R"({"format_version": 1, "layers": [7]})", "layers[0]: expected an object, got 7");
  expect(changed("\"format_version\": 1", "\"format_version\": 2"), "line 2: format_version: expected 1, got 2");
  expect(changed("\"conv\", \"out\": 5", "\"cone\", \"out\": 5"),
         "line 6: layers[2].type: expected one of conv, linear, pool, got \"cone\"");
  expect(changed("\"out\": 6", "\"out\": 0"), "line 4: layers[0].out: expected 1 to 1048576, got 0");
  expect(changed("\"out\": 6", "\"out\": 6.5"), "line 4: layers[0].out: expected 1 to 1048576, got 6.5");
  expect(changed("\"out\": 6", "\"out\": \"six\""), "line 4: layers[0].out: expected 1 to 1048576, got \"six\"");
  expect(changed("\"out\": 33", "\"outs\": 33"), "line 7: layers[3].outs is no entry of this");
  expect(changed(", \"out\": 33", ""), "line 7: layers[3] has no out");
  expect(changed("\"bits\": 8", "\"bits\": 5"), "line 6: layers[2].bits: expected 32, 8, 4 or 1, got 5");
  expect(changed("\"relu\"", "\"tanh\""),
         "line 4: layers[0].activation: expected one of none, relu, prelu, got \"tanh\"");
  expect(changed("\"size\": 2", "\"size\": 2, \"bits\": 4"), "line 5: layers[1].bits is no entry of this");
  expect(changed("\"format_version\"", "\"name\": \"x\",\n\"format_version\""), "line 2: name is no entry of this");
}

TEST_F(NetDescription, NothingIsReadTwiceOrPassedOver) {
  expect(changed("\"out\": 6", "\"out\": 6, \"out\": 7"), "line 4: layers[0].out appears twice");
  expect(changed("\"format_version\": 1", "\"format_version\": 1,\n\"format_version\": 1"),
         "line 3: format_version appears twice");
  expect(std::string(good) + "{}", "this is no JSON");
  expect(good + std::string("\0{}", 3), "holds a zero byte");
  expect(changed("\"out\": 6", "\"out\": 4294967302"), "layers[0].out: expected 1 to 1048576, got 4294967302");
}

TEST_F(NetDescription, DepthAndWidthCostNothing) {
  const std::string deep = std::string(1 << 20, '[') + std::string(1 << 20, ']');
  expect(deep, "the text is no JSON object");
  expect("{\"format_version\": 1, \"layers\": " + deep + "}", "layers[0]: expected an object, got an array");
  expect(changed("\"out\": 6", "\"out\": " + deep), "line 4: layers[0].out: expected one value, got an array");
  std::string wide = "{\"format_version\": 1, \"layers\": [";
  for (int i = 0; i < 100000; ++i) wide += "{\"type\": \"linear\", \"out\": 1},\n";
  expect(wide + "]}", "layers is no array of 1 to 1000 layers");
}

TEST_F(NetDescription, AConvolutionMayHaveOneBit) {
  const auto model = make_model(load(changed("\"bits\": 8", "\"bits\": 1"), 32));
  ASSERT_EQ(model->quant_layers().size(), 1u);
  EXPECT_STREQ(model->quant_layers()[0]->kind(), "BinaryConv2d");
}

TEST_F(NetDescription, WhatDoesNotFitTogetherIsRefused) {
  const auto refused = [&](const std::string& text, int bits, const std::string& part) {
    EXPECT_NE(refusal([&] { make_model(load(text, bits)); }).find(part), std::string::npos) << part;
  };
  refused(changed("\"size\": 2", "\"size\": 10"), 4, "layers[1] takes squares of 10, what reaches it is 9x11");
  refused(changed("\"type\": \"pool\", \"size\": 2", "\"type\": \"linear\", \"out\": 3"), 4,
          "layers[2] is a conv behind a linear");
  expect_sentence(refusal([&] { load_net_description(scratch_.path("none"), {}); }), scratch_.path("none"),
                  "cannot be opened");
}

}  // namespace
}  // namespace bie::models::test
