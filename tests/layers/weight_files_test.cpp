// Rows of codes, as files hold them, in a layer.
#include "bie/layers/weight_files.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include <limits>
#include <random>

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
  EXPECT_NE(refusal([&] { weight_only_linear(w, at::ones({6})); }).find("'bias' is [6]"), std::string::npos);
  const at::Tensor nan = at::ones({7}) * std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(refusal([&] { weight_only_linear(w, nan); }).find("'bias'"), std::string::npos);
}

}  // namespace
}  // namespace bie::layers::test
