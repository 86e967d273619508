// GGUF files that are written are read back. Files are compared with the gguf package in
// tests/python/gguf_writer_test.py.
#include "bie/formats/gguf_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <type_traits>

#include "tests/support/scratch.h"

namespace bie::formats::test {
namespace {

using bie::test::expect_sentence;
using bie::test::refusal;
using bie::test::Scratch;
using Type = GgufValueType;

std::map<std::string, GgufValue> every_value() {
  using Numbers = std::vector<std::uint64_t>;
  return {
      {"u8", {Type::u8, std::uint64_t{255}}},
      {"i8", {Type::i8, std::int64_t{-128}}},
      {"u16", {Type::u16, std::uint64_t{65535}}},
      {"i16", {Type::i16, std::int64_t{-32768}}},
      {"u32", {Type::u32, std::uint64_t{4294967295}}},
      {"i32", {Type::i32, std::numeric_limits<std::int32_t>::min() + std::int64_t{0}}},
      {"f32", {Type::f32, 0.25}},
      {"bool", {Type::boolean, std::uint64_t{1}}},
      {"text", {Type::string, std::string("a\0b", 3)}},
      {"u64", {Type::u64, ~std::uint64_t{0}}},
      {"i64", {Type::i64, std::numeric_limits<std::int64_t>::min()}},
      {"f64", {Type::f64, 0.1}},
      {"numbers", {Type::u16, Numbers{1, 2, 3}}},
      {"flags", {Type::boolean, Numbers{0, 1}}},
      {"signed", {Type::i8, std::vector<std::int64_t>{-1, 1}}},
      {"floats", {Type::f32, std::vector<double>{0.5, -2}}},
      {"texts", {Type::string, std::vector<std::string>{"", "x"}}},
      {"none", {Type::string, std::vector<std::string>{}}},
      {"lists",
       {Type::array, std::vector<GgufValue>{{Type::u8, Numbers{7}}, {Type::string, std::vector<std::string>{"y"}}}}}};
}

void expect_same(const GgufValue& found, const GgufValue& wanted, const std::string& key) {
  EXPECT_EQ(found.type, wanted.type) << key;
  ASSERT_EQ(found.value.index(), wanted.value.index()) << key;
  const auto* lists = std::get_if<std::vector<GgufValue>>(&wanted.value);
  if (lists == nullptr) {
    std::visit(
        [&]<class T>(const T& value) {
          if constexpr (!std::is_same_v<T, std::vector<GgufValue>>) {
            EXPECT_EQ(std::get<T>(found.value), value) << key;
          }
        },
        wanted.value);
    return;
  }
  const auto& parts = std::get<std::vector<GgufValue>>(found.value);
  ASSERT_EQ(parts.size(), lists->size()) << key;
  for (std::size_t i = 0; i < parts.size(); ++i) expect_same(parts[i], (*lists)[i], key);
}

TEST(GgufWriter, WhatIsWrittenIsRead) {
  const Scratch scratch;
  const std::vector<std::uint8_t> numbers = {0, 0, 128, 63, 0, 0, 0, 192}, blocks(34 * 3 * 2, 7);
  auto metadata = every_value();
  metadata["general.alignment"] = {Type::u32, std::uint64_t{16}};
  save_gguf(
      scratch.path("a"), metadata,
      {{"w", {2, 3, 32}, gguf_type("Q8_0"), blocks.data(), 204}, {"x", {2}, gguf_type("F32"), numbers.data(), 8}});
  EXPECT_EQ(scratch.count(), 1);
  const GgufFile file = load_gguf(scratch.path("a"));
  ASSERT_EQ(file.metadata.size(), metadata.size());
  for (const auto& [key, value] : metadata) expect_same(file.metadata.at(key), value, key);
  ASSERT_EQ(file.tensors.size(), 2U);
  EXPECT_EQ(file.tensors[0].sizes, (std::vector<std::int64_t>{2, 3, 32}));
  EXPECT_EQ(std::vector<std::uint8_t>(file.tensors[0].bytes->data, file.tensors[0].bytes->data + 204), blocks);
  EXPECT_EQ(gguf_array(file, file.tensors[1]).data<float>()[0], 1.0F);
  EXPECT_EQ(gguf_array(file, file.tensors[1]).data<float>()[1], -2.0F);
}

TEST(GgufWriter, CodesComeBackFromTheirBlocks) {
  std::mt19937 random(1);
  for (const char* name : {"Q4_0", "Q4_1", "Q8_0", "Q1_0", "Q2_0", "TQ2_0"}) {
    const GgufType& type = *gguf_type(name);
    CodedRows w;
    w.rows = 3;
    w.columns = 512;
    w.bits = type.bits;
    w.group = type.group;
    w.zero = type.zero;
    w.words.resize(static_cast<std::size_t>(w.rows * w.row_words()));
    for (std::uint32_t& word : w.words) word = static_cast<std::uint32_t>(random());
    for (std::int64_t i = 0; i < w.rows * w.groups(); ++i) {
      w.scales.push_back(static_cast<float>(random() % 1024) * 0x1p-9F);
      if (type.zero == 0) w.zeros.push_back(w.scales.back() / 2);
    }
    const std::vector<std::uint8_t> blocks = gguf_blocks("a", type, w);
    const CodedRows found = gguf_codes("a", type, blocks.data(), w.rows, w.columns);
    EXPECT_EQ(found.words, w.words) << name;
    EXPECT_EQ(found.scales, w.scales) << name;
    EXPECT_EQ(found.zeros, w.zeros) << name;
  }
}

TEST(GgufWriter, AFileThatCannotBeWrittenLeavesWhatWasThere) {
  const Scratch scratch;
  const std::vector<std::uint8_t> bytes(8);
  const std::vector<GgufOutput> good = {{"x", {2}, gguf_type("F32"), bytes.data(), 8}};
  save_gguf(scratch.path("a"), {}, good);
  const std::string before = bie::test::read_file(scratch.path("a"));
  const auto refused = [&](const GgufOutput& tensor, const char* part) {
    std::vector<GgufOutput> tensors = good;
    tensors.push_back(tensor);
    expect_sentence(refusal([&] { save_gguf(scratch.path("a"), {}, tensors); }), scratch.path("a"), part);
  };
  refused({"x", {2}, gguf_type("F32"), bytes.data(), 8}, "tensor \"x\" appears twice");
  refused({"y", {3}, gguf_type("F32"), bytes.data(), 8}, "\"y\" is F32 [3], which 8 bytes are not");
  refused({"y", {33}, gguf_type("Q8_0"), bytes.data(), 8}, "\"y\" is Q8_0 [33], which 8 bytes are not");
  refused({"y", {0}, gguf_type("F32"), bytes.data(), 0}, "\"y\" is [0], which GGUF does not have");
  refused({"y", {1, 1, 1, 1, 2}, gguf_type("F32"), bytes.data(), 8}, "\"y\": expected at most 4 axes, got 5");
  EXPECT_EQ(bie::test::read_file(scratch.path("a")), before);
  EXPECT_EQ(scratch.count(), 1);
  expect_sentence(refusal([&] { save_gguf(scratch.path("none/a"), {}, good); }), scratch.path("none/a"), "");
}

/// The mean square of what a type's blocks differ from the numbers they stand for, over that of the numbers, both
/// weighted by importance if it is given.
double error_of(const char* name, const std::vector<float>& x, const std::vector<float>* importance = nullptr,
                bool is_searched = true) {
  const GgufType& type = *gguf_type(name);
  const auto columns = std::ssize(x);
  const bool has_importance = importance != nullptr && is_searched;
  const std::vector<std::uint8_t> blocks =
      gguf_rounded("x", type, x.data(), 1, columns, has_importance ? importance->data() : nullptr);
  std::vector<std::uint8_t> codes(x.size());
  std::vector<float> scales(x.size() / static_cast<std::size_t>(type.group)), zeros(scales.size());
  gguf_row(type, blocks.data(), columns, codes.data(), scales.data(), zeros.data());
  double error = 0, all = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t g = i / static_cast<std::size_t>(type.group);
    const float opened = type.zero == 0 ? scales[g] * static_cast<float>(codes[i]) - zeros[g]
                                        : scales[g] * static_cast<float>(codes[i] - type.zero);
    const auto weight = importance == nullptr ? 1.0 : static_cast<double>((*importance)[i]);
    error += weight * std::pow(static_cast<double>(opened) - static_cast<double>(x[i]), 2);
    all += weight * std::pow(static_cast<double>(x[i]), 2);
  }
  return error / all;
}

TEST(GgufWriter, MoreBitsAreNearer) {
  std::mt19937 rng(3);
  std::vector<float> x(4096);
  for (float& v : x) v = static_cast<float>(static_cast<double>(rng()) / 4294967296.0 - 0.5);
  double before = 1;
  for (const char* name : {"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_0"}) {
    const double error = error_of(name, x);
    EXPECT_LT(error, before / 3) << name;
    before = error;
  }
  EXPECT_LT(error_of("Q4_K", x), error_of("Q4_1", x));
  EXPECT_LT(error_of("Q5_1", x), error_of("Q4_1", x) / 3);
  EXPECT_LT(error_of("Q5_0", x), error_of("Q4_0", x) / 3);
}

TEST(GgufWriter, ASearchHasLessWeightedError) {
  std::mt19937 rng(5);
  std::vector<float> x(8192), importance(x.size());
  for (float& v : x) v = static_cast<float>(static_cast<double>(rng()) / 4294967296.0 - 0.5);
  for (std::size_t i = 0; i < x.size(); i += 50) x[i] *= 4;
  for (float& v : importance) v = rng() % 8 == 0 ? 100.0f : static_cast<float>(rng() % 100) * 0.01f;
  for (const char* name :
       {"Q1_0", "Q2_0", "TQ2_0", "Q2_K", "Q3_K", "Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K"})
    EXPECT_LT(error_of(name, x, &importance), 0.97 * error_of(name, x, &importance, false)) << name;
  const GgufType& type = *gguf_type("Q4_0");
  const std::vector<std::uint8_t> nearest = gguf_rounded("x", type, x.data(), 2, 4096);
  const std::vector<float> zeros(4096);
  EXPECT_EQ(gguf_rounded("x", type, x.data(), 2, 4096, zeros.data()), nearest);
  importance[7] = -1;
  expect_sentence(refusal([&] { gguf_rounded("x", type, x.data(), 2, 4096, importance.data()); }), "x",
                  "the weights of errors hold NaN, infinity or a number below 0");
}

TEST(GgufWriter, TheBestTernaryScaleOfAll) {
  std::mt19937 rng(6);
  std::vector<float> x(64), weights(64);
  for (float& v : x) v = static_cast<float>(static_cast<double>(rng()) / 4294967296.0 - 0.5);
  for (float& v : weights) v = 0.1f + static_cast<float>(rng() % 100);
  double best = 1;
  for (int step = 1; step < 2000; ++step) {
    const double d = step * 0.0005;
    double error = 0, all = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double size = std::fabs(static_cast<double>(x[i])),
                   of_code = std::min(size * size, (size - d) * (size - d));
      error += static_cast<double>(weights[i]) * of_code;
      all += static_cast<double>(weights[i]) * size * size;
    }
    best = std::min(best, error / all);
  }
  EXPECT_LE(error_of("Q2_0", x, &weights), best * 1.001);
}

TEST(GgufWriter, KQuantsOfStrangeBlocks) {
  for (const char* name : {"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"}) {
    const GgufType& type = *gguf_type(name);
    std::vector<float> x(256);
    const std::vector<std::uint8_t> zeros = gguf_rounded("x", type, x.data(), 1, 256);
    for (const CodedRows& rows = gguf_codes("x", type, zeros.data(), 1, 256); const float s : rows.scales)
      EXPECT_EQ(s, 0) << name;
    for (const float size : {1e-38f, 1e-20f, 1e-6f, 6e4f}) {
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 3 == 0 ? size : -size;
      const std::vector<std::uint8_t> blocks = gguf_rounded("x", type, x.data(), 1, 256);
      EXPECT_NO_THROW(gguf_codes("x", type, blocks.data(), 1, 256)) << name << ", " << size;
    }
    std::fill(x.begin(), x.end(), 1e30f);
    expect_sentence(refusal([&] { gguf_rounded("x", type, x.data(), 1, 256); }), "x", "is beyond 16-bit floats");
    x[7] = std::numeric_limits<float>::quiet_NaN();
    expect_sentence(refusal([&] { gguf_rounded("x", type, x.data(), 1, 256); }), "x", "NaN or infinity");
    expect_sentence(refusal([&] { gguf_rounded("x", type, x.data(), 1, 255); }), "x",
                    "no whole number of blocks of 256");
  }
}

}  // namespace
}  // namespace bie::formats::test
