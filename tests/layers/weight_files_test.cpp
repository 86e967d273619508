// Rows of codes, as files hold them, in a layer.
#include "bie/layers/weight_files.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>

#include <limits>
#include <map>
#include <random>
#include <string>

#include "tests/support/scratch.h"

namespace bie::layers::test {
namespace {

using bie::test::refusal;

/// Random codes, halves as scales and zeros.
formats::CodedRows random_rows(int bits, std::int64_t rows, std::int64_t columns, std::int64_t group, int zero) {
  std::mt19937 random(static_cast<unsigned>(bits));
  formats::CodedRows w;
  w.rows = rows;
  w.columns = columns;
  w.bits = bits;
  w.group = group;
  w.zero = zero;
  w.words.resize(static_cast<std::size_t>(rows * w.row_words()));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      formats::put_code(w.words.data() + r * w.row_words(), bits, c,
                        static_cast<std::uint32_t>(random() % (1U << bits)));
  const auto half = [&] { return static_cast<float>(random() % 2048) * 0x1p-10F - 1; };
  for (std::int64_t i = 0; i < rows * w.groups(); ++i) w.scales.push_back(half());
  if (zero == 0)
    for (std::int64_t i = 0; i < rows * w.groups(); ++i) w.zeros.push_back(half());
  return w;
}

/// By the formula, [columns, rows].
at::Tensor wanted_of(const formats::CodedRows& w) {
  at::Tensor wanted = at::empty({w.columns, w.rows});
  auto at = wanted.accessor<float, 2>();
  for (std::int64_t r = 0; r < w.rows; ++r)
    for (std::int64_t c = 0; c < w.columns; ++c) {
      const auto code = static_cast<float>(formats::code_at(w.words.data() + r * w.row_words(), w.bits, c));
      const auto g = static_cast<std::size_t>(r * w.groups() + c / w.group);
      at[c][r] = w.zeros.empty() ? w.scales[g] * (code - static_cast<float>(w.zero)) : w.scales[g] * code - w.zeros[g];
    }
  return wanted;
}

TEST(WeightFiles, ALayerHoldsTheRowsToTheBit) {
  at::manual_seed(1);
  for (const int bits : {1, 2, 3, 4, 5, 6, 8})
    for (const bool whole : {false, true}) {
      const formats::CodedRows w = random_rows(bits, 7, 100, 32, whole ? 1 << (bits - 1) : 0);
      const at::Tensor wanted = wanted_of(w), bias = at::randn({7});
      WeightOnlyLinear layer = weight_only_linear(w, bias);
      EXPECT_TRUE(layer->open().equal(wanted)) << bits;
      EXPECT_FALSE(layer->is_training());
      const at::Tensor x = at::randn({3, 100});
      const at::Tensor exact = at::matmul(x.to(at::kDouble), wanted.to(at::kDouble)) + bias;
      EXPECT_LT((layer->forward(x).to(at::kDouble) - exact).abs().max().item<double>(), 1e-3) << bits;
    }
}

TEST(WeightFiles, ABiasThatDoesNotFitIsRefused) {
  const formats::CodedRows w = random_rows(4, 7, 64, 32, 8);
  EXPECT_NE(refusal([&] {
              weight_only_linear(w, at::ones({6}));
            }).find("'bias': expected [7] of a floating-point dtype, got [6]"),
            std::string::npos);
  const at::Tensor nan = at::ones({7}) * std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(refusal([&] { weight_only_linear(w, nan); }).find("'bias'"), std::string::npos);
}

/// A dense array of what a tensor holds.
formats::Array array_of(const at::Tensor& tensor, formats::Element element) {
  const at::Tensor dense = tensor.contiguous();
  const auto* bytes = static_cast<const std::uint8_t*>(dense.const_data_ptr());
  return formats::array_of(element, dense.sizes().vec(), {bytes, bytes + dense.nbytes()});
}

formats::CodedLayer coded_layer(formats::CodedLayer::Kind kind, int bits, std::int64_t k, std::int64_t n) {
  formats::CodedLayer layer;
  layer.kind = kind;
  layer.bits = bits;
  layer.in_features = k;
  layer.out_features = n;
  layer.group = 32;
  return layer;
}

using Kind = formats::CodedLayer::Kind;
using formats::Element;

/// Codes, halves as scales and an index of groups in any order; and the codes with their groups.
struct Parts {
  at::Tensor codes, groups, scales;
};

Parts put_parts(formats::CodedLayer* layer, std::int64_t groups) {
  at::manual_seed(layer->bits);
  const std::int64_t k = layer->in_features, n = layer->out_features;
  Parts p{at::randint(0, 1 << layer->bits, {k, n}, at::kInt), at::randint(0, groups, {k}, at::kInt),
          at::randn({groups, n}).to(at::kHalf)};
  layer->tensors["qweight"] = array_of(ops::pack_words(p.codes, layer->bits), Element::i32);
  layer->tensors["g_idx"] = array_of(p.groups, Element::i32);
  layer->tensors["scales"] = array_of(p.scales, Element::f16);
  return p;
}

TEST(WeightFiles, GptqStoresItsZerosMinusOneInItsFirstVersion) {
  for (const int bits : {2, 3, 4, 8})
    for (const int least : {1, 0}) {
      for (const Kind kind : {Kind::gptq, Kind::gptq2}) {
        if (kind == Kind::gptq && least == 0) continue;
        formats::CodedLayer layer = coded_layer(kind, bits, 70, 9);
        const Parts p = put_parts(&layer, 3);
        at::Tensor zeros = at::randint(least, 1 << bits, {3, 9}, at::kInt);
        zeros[1][2] = least;
        layer.tensors["qzeros"] =
            array_of(ops::pack_words(kind == Kind::gptq ? zeros - 1 : zeros, bits, /*dim=*/1), Element::i32);
        const at::Tensor rows = p.groups.to(at::kLong), s = p.scales.to(at::kFloat).index_select(0, rows);
        const at::Tensor wanted = s * (p.codes - zeros.index_select(0, rows)).to(at::kFloat);
        EXPECT_TRUE(weight_only_linear(layer)->open().equal(wanted)) << bits << ' ' << least;
      }
    }
}

TEST(WeightFiles, ScalesOfScalesAreOpenedInTheirDtype) {
  formats::CodedLayer layer = coded_layer(Kind::gba, 4, 96, 40);
  layer.scale_group = 16;
  const Parts p = put_parts(&layer, 3);
  layer.tensors.erase("scales");
  const at::Tensor statistic = at::randint(0, 256, {3, 3, 16}, at::kByte);
  layer.tensors["qstatistic"] = array_of(statistic, Element::u8);
  std::map<std::string, at::Tensor> tables;
  for (const char* key : {"qscales_zeros", "qscales_scales", "qzeros_zeros", "qzeros_scales"}) {
    tables[key] = at::randn({3, 3, 1}).to(at::kHalf);
    layer.tensors[key] = array_of(tables[key], Element::f16);
  }
  const auto opened = [&](const at::Tensor& codes, const std::string& name) {
    const at::Tensor table = (codes.to(at::kHalf) - tables[name + "_zeros"]) * tables[name + "_scales"];
    return table.reshape({3, 48}).narrow(1, 0, 40).to(at::kFloat).index_select(0, p.groups.to(at::kLong));
  };
  const at::Tensor wanted = p.codes.to(at::kFloat) * opened(statistic.bitwise_right_shift(4), "qscales") -
                            opened(statistic.bitwise_and(15), "qzeros");
  EXPECT_TRUE(weight_only_linear(layer)->open().equal(wanted));
}

TEST(WeightFiles, RowsThatArePermuted) {
  at::manual_seed(4);
  for (const bool mixed : {false, true}) {
    formats::CodedLayer layer = coded_layer(mixed ? Kind::mixed : Kind::mbwq, mixed ? 0 : 4, 64, 8);
    layer.group = mixed ? 64 : 32;
    const at::Tensor first = at::randint(16, {32, 8}, at::kInt),
                     second = at::randint(mixed ? 4 : 16, {32, 8}, at::kInt);
    const at::Tensor words = at::cat({ops::pack_words(first, 4), ops::pack_words(second, mixed ? 2 : 4)});
    const at::Tensor scales = at::rand({2, 8}) + 0.1, zeros = at::randn({2, 8}), bias = at::randn({8});
    const at::Tensor order = at::randperm(64), factor = at::rand({1, 1, 64}) + 0.5;
    layer.tensors = {{"qweight", array_of(words, Element::i32)},
                     {"q_perm", array_of(order.to(at::kShort), Element::i16)},
                     {"scales", array_of(scales, Element::f32)},
                     {"zeros", array_of(zeros, Element::f32)},
                     {"bias", array_of(bias, Element::f32)}};
    if (mixed) layer.tensors["q_groups"] = array_of(at::tensor({4, 0, 2, 4}, at::kShort), Element::i16);
    at::Tensor wanted = at::empty({64, 8});
    for (std::int64_t i = 0; i < 64; ++i)
      wanted[order[i].item<std::int64_t>()] = (i < 32 ? first[i] : second[i - 32]) * scales[i / 32] - zeros[i / 32];
    MBWQLinear made = mbwq_linear(layer);
    EXPECT_LT((made->open() - wanted).abs().max().item<double>(), 1e-5) << mixed;
    EXPECT_FALSE(made->is_training());
    const at::Tensor x = at::randn({3, 64});
    EXPECT_TRUE(made->forward(x).allclose(at::matmul(x, wanted) + bias, 1e-4, 1e-3)) << "a channel_scale of ones";
    layer.tensors["channel_scale"] = array_of(factor, Element::f32);
    EXPECT_TRUE(mbwq_linear(layer)->forward(x).allclose(at::matmul(x * factor.view({64}), wanted) + bias, 1e-4, 1e-3));
    EXPECT_NE(refusal([&] { weight_only_linear(layer); }).find("permuted: mbwq_linear"), std::string::npos);
    layer.tensors["more"] = array_of(bias, Element::f32);
    EXPECT_NE(refusal([&] { mbwq_linear(layer); }).find("a more that MBWQLinear"), std::string::npos);
  }
  EXPECT_NE(refusal([] { mbwq_linear(coded_layer(Kind::gptq, 4, 32, 8)); }).find("are not permuted"),
            std::string::npos);
}

}  // namespace
}  // namespace bie::layers::test
