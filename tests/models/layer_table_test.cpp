// pretty_print of every kind and form, and the table of a model.
#include "bie/models/layer_table.h"

#include <sstream>

#include "bie/models/classifier.h"
#include "tests/layers/every_layer.h"

namespace bie::models::test {
namespace {

std::string printed(const torch::nn::Module& layer) {
  std::ostringstream text;
  layer.pretty_print(text);
  return text.str();
}

TEST(PrettyPrint, SaysKindSizesAndForm) {
  layers::BinaryLinearImpl binary(1000, 37);
  EXPECT_EQ(printed(binary), "BinaryLinear(1000, 37, float weight)");
  binary.prepare_params();
  EXPECT_EQ(printed(binary), "BinaryLinear(1000, 37, int8 weight)");
  binary.generate_quantized_weight(true);
  EXPECT_EQ(printed(binary), "BinaryLinear(1000, 37, packed weight)");
  layers::Q8LinearImpl q8(layers::QLinearOptions{.in_features = 7, .out_features = 5, .bias = true});
  EXPECT_EQ(printed(q8), "Q8Linear(7, 5, float weight, bias)");
  q8.set_compat(layers::Compat::bie_0_2_6);
  EXPECT_EQ(printed(q8), "Q8Linear(7, 5, float weight, bias, compat=bie-0.2.6)");
  layers::Q4LinearImpl q4(layers::QLinearOptions{.in_features = 7, .out_features = 5, .latent = false});
  q4.prepare_params();
  EXPECT_EQ(printed(q4), "Q4Linear(7, 5, int8 weight)");
  q4.set_grad_mode(ops::GradMode::reference);
  EXPECT_EQ(printed(q4), "Q4Linear(7, 5, int8 weight, reference gradients)");
}

TEST(PrettyPrint, SaysTheGeometryWhereItIsNotTheUsual) {
  EXPECT_EQ(printed(layers::Q8Conv2dImpl({3, 5, {3, 3}})), "Q8Conv2d(3, 5, kernel_size=[3, 3], float weight)");
  layers::Q4Conv2dImpl conv({3, 5, {3, 2}, {2, 1}, {1, 0}, {1, 2}});
  conv.generate_quantized_weight(true);
  EXPECT_EQ(printed(conv),
            "Q4Conv2d(3, 5, kernel_size=[3, 2], stride=[2, 1], padding=[1, 0], dilation=[1, 2], packed weight)");
}

TEST(PrettyPrint, SaysHowABinaryConvolutionIsGroupedAndPadded) {
  EXPECT_EQ(printed(layers::BinaryConv2dImpl({3, 5, {3, 3}})), "BinaryConv2d(3, 5, kernel_size=[3, 3], float weight)");
  layers::BinaryConv2dImpl conv({4, 6, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2, 0});
  conv.prepare_params();
  EXPECT_EQ(printed(conv),
            "BinaryConv2d(4, 6, kernel_size=[3, 3], padding=[1, 1], groups=2, padding_value=0, int8 weight)");
}

TEST(PrettyPrint, AModelPrintsItsLayers) {
  const auto model = make_model({.arch = "mlp", .bits = 4, .image = {1, 4, 4}, .hidden = 9, .depth = 1});
  std::ostringstream text;
  text << *model;
  EXPECT_NE(text.str().find("Q4Linear(9, 9, float weight)"), std::string::npos) << text.str();
}

/// The words of each line.
std::vector<std::vector<std::string>> lines(const std::string& table) {
  std::vector<std::vector<std::string>> result;
  std::istringstream text(table);
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    result.emplace_back();
    for (std::string word; words >> word;) result.back().push_back(word);
  }
  return result;
}

std::int64_t number(const std::vector<std::string>& line, std::size_t from_the_end) {
  return std::stoll(line.at(line.size() - 1 - from_the_end));
}

TEST(LayerTable, HasALinePerLayerAndTheTotals) {
  for (const ModelConfig& config :
       {ModelConfig{.arch = "mlp", .bits = 1, .image = {1, 7, 5}, .classes = 3, .hidden = 33, .depth = 2},
        ModelConfig{.arch = "mlp", .bits = 8, .image = {1, 7, 5}, .hidden = 33, .depth = 1, .norm = false},
        ModelConfig{.arch = "lenet", .bits = 4, .image = {2, 17, 20}, .hidden = 33, .quantise_first = true},
        ModelConfig{.arch = "lenet", .bits = 32, .image = {2, 17, 20}, .hidden = 33},
        ModelConfig{.arch = "vgg-small", .bits = 4, .image = {3, 8, 8}, .hidden = 33, .linear_bits = 1},
        ModelConfig{.arch = "resnet20", .bits = 8, .image = {3, 8, 8}}})
    for (const bool packed : {false, true}) {
      const auto model = make_model(config);
      layers::prepare_layers(*model);
      if (packed) layers::pack_layers(*model);
      std::int64_t bytes = 0, owners = 0;
      for (const auto& [name, tensor] : layers::test::state(*model))
        bytes += static_cast<std::int64_t>(tensor.nbytes());
      for (const auto& module : model->modules())
        owners += module->parameters(/*recurse=*/false).size() + module->buffers(/*recurse=*/false).size() > 0;
      const std::vector<LayerRow> rows = layer_rows(*model);
      ASSERT_EQ(static_cast<std::int64_t>(rows.size()), owners);
      std::int64_t weights = 0, quantised = 0, row_bytes = 0;
      for (const LayerRow& row : rows) {
        weights += row.weights;
        row_bytes += row.bytes;
        if (row.bits < 32) quantised += row.weights;
        EXPECT_NE(row.name, "");
        EXPECT_GT(row.bytes, 0) << row.name;
      }
      EXPECT_EQ(weights, model->weight_count());
      EXPECT_EQ(quantised, model->quantised_count());
      EXPECT_EQ(row_bytes, bytes);

      const auto table = lines(layer_table(*model));
      ASSERT_EQ(table.size(), rows.size() + 2);
      EXPECT_EQ(table[0], (std::vector<std::string>{"name", "layer", "bits", "weights", "bytes"}));
      for (std::size_t i = 0; i < rows.size(); ++i) {
        EXPECT_EQ(table[i + 1][0], rows[i].name);
        EXPECT_EQ(number(table[i + 1], 0), rows[i].bytes);
        EXPECT_EQ(number(table[i + 1], 1), rows[i].weights);
        EXPECT_EQ(table[i + 1][table[i + 1].size() - 3], rows[i].weights > 0 ? std::to_string(rows[i].bits) : "-");
      }
      EXPECT_EQ(table.back(), (std::vector<std::string>{"total", std::to_string(weights), std::to_string(bytes)}));
    }
}

TEST(LayerTable, RowsSayWhatTheLayersAre) {
  const auto model = make_model({.arch = "mlp", .bits = 1, .image = {1, 7, 5}, .classes = 3, .hidden = 33, .depth = 1});
  layers::prepare_layers(*model);
  std::map<std::string, LayerRow> rows;
  for (const LayerRow& row : layer_rows(*model)) rows[row.name] = row;
  ASSERT_EQ(rows.count("block1.product"), 1u);
  const LayerRow& binary = rows.at("block1.product");
  EXPECT_EQ(binary.description, "BinaryLinear(33, 33, int8 weight)");
  EXPECT_EQ(binary.bits, 1);
  EXPECT_EQ(binary.weights, 33 * 33);
  EXPECT_EQ(binary.bytes, 33 * 33 + 4 * (33 + 2));
  EXPECT_EQ(rows.at("head").bits, 32);
  EXPECT_EQ(rows.at("head").weights, 33 * 3);
  EXPECT_EQ(rows.at("head").bytes, 4 * (33 * 3 + 3));
  EXPECT_EQ(rows.at("block1.act").weights, 0) << "PReLU has a weight of one number, which is none of these";
  layers::pack_layers(*model);
  for (const LayerRow& row : layer_rows(*model))
    if (row.name == "block1.product") {
      EXPECT_EQ(row.weights, 33 * 33);
      EXPECT_EQ(row.bytes, 33 * 5 + 4 * (33 + 2));
    }
}

TEST(LayerTable, ALayerAlone) {
  layers::Q4LinearImpl layer(7, 5);
  ASSERT_EQ(layer_rows(layer).size(), 1u);
  EXPECT_EQ(layer_rows(layer)[0].weights, 35);
  EXPECT_EQ(lines(layer_table(layer)).back()[0], "total");
}

}  // namespace
}  // namespace bie::models::test
