// Types with groups of codes: their names, their blocks, and how numbers are rounded to them.
#include "bie/formats/group_types.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "bie/formats/error.h"
#include "bie/formats/gguf_writer.h"
#include "bie/formats/written_types.h"
#include "tests/support/scratch.h"

namespace bie::formats::test {
namespace {

using bie::test::expect_sentence;
using bie::test::refusal;
using bie::test::Scratch;

constexpr int widths[] = {1, 2, 3, 4, 5, 6, 8};

std::vector<float> normal_numbers(std::int64_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(normal(engine));
  return values;
}

std::string name_of(int bits, int group, const char* end = "") {
  return "W" + std::to_string(bits) + "G" + std::to_string(group) + end;
}

/// Rows that were rounded, and what stands for them.
struct Opened {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales, zeros, values;
};

Opened opened(const GgufType& type, const std::vector<std::uint8_t>& blocks, std::int64_t count) {
  Opened o;
  o.codes.resize(static_cast<std::size_t>(count));
  o.scales.resize(static_cast<std::size_t>(count / type.group));
  o.zeros.resize(o.scales.size());
  gguf_row(type, blocks.data(), count, o.codes.data(), o.scales.data(), o.zeros.data());
  for (std::size_t i = 0; i < o.codes.size(); ++i) {
    const std::size_t g = i / static_cast<std::size_t>(type.group);
    o.values.push_back(o.scales[g] * static_cast<float>(o.codes[i]) - o.zeros[g]);
  }
  return o;
}

double error_of(const std::vector<float>& x, const Opened& o, const std::vector<float>& importance) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double away = static_cast<double>(x[i]) - static_cast<double>(o.values[i]);
    sum += static_cast<double>(importance[i]) * away * away;
  }
  return sum;
}

TEST(GroupTypes, HaveTheSizesOfTheirNames) {
  for (const int bits : widths)
    for (const int group : {16, 64, 576, 1024}) {
      const GgufType* const type = group_type(name_of(bits, group));
      ASSERT_NE(type, nullptr) << name_of(bits, group);
      EXPECT_EQ(type->bits, bits);
      EXPECT_EQ(type->group, group);
      EXPECT_EQ(type->weights, group);
      EXPECT_EQ(type->bytes, 4 + group * bits / 8);
      EXPECT_TRUE(is_group_type(*type));
      EXPECT_EQ(zero_of(*type), GroupZero::real);
      EXPECT_EQ(type, written_type("w" + std::to_string(bits) + "g" + std::to_string(group)));
    }
  EXPECT_FALSE(is_group_type(*gguf_type("Q4_0")));
}

TEST(GroupTypes, OtherNamesAreNone) {
  for (const char* name : {"W7G64", "W0G64", "W9G64", "W3G8", "W3G24", "W3G1040", "W3G", "G64", "w3g64", "W3G64 ",
                           "W03G64", "W1G64Z", "W5G64Z", "W6G64Z", ""})
    EXPECT_EQ(group_type(name), nullptr) << name;
  for (const char* name : {"W3G64", "w3g64z", "w3g64Z", "w3", "q9_0", ""})
    EXPECT_EQ(written_type(name), nullptr) << name;
}

TEST(GroupTypes, WholeZerosAreThoseOfGptq) {
  const GgufType* const real = group_type("W4G128");
  const GgufType* const whole = group_type("W4G128Z");
  EXPECT_EQ(group_type_with(*real, GroupZero::whole), whole);
  EXPECT_EQ(group_type_with(*whole, GroupZero::real), real);
  EXPECT_EQ(group_type_with(*group_type("W5G64"), GroupZero::whole), nullptr);
  EXPECT_EQ(zero_of(*whole), GroupZero::whole);
}

TEST(GroupTypes, RowsGetSmallerGroups) {
  EXPECT_EQ(fitting_type(*group_type("W3G128"), 576).name, "W3G96");
  EXPECT_EQ(fitting_type(*group_type("W3G64"), 640).name, "W3G64");
  EXPECT_EQ(fitting_type(*group_type("W3G64"), 600).name, "F16");
  EXPECT_EQ(fitting_type(*gguf_type("Q4_K"), 576).name, "Q5_0");
}

TEST(GroupTypes, CodesComeBack) {
  for (const int bits : widths)
    for (const int group : {16, 48, 64, 1024}) {
      const GgufType& type = *group_type(name_of(bits, group));
      std::vector<std::uint8_t> codes, block(static_cast<std::size_t>(type.bytes), 0xff), found(group);
      for (int i = 0; i < group; ++i) codes.push_back(static_cast<std::uint8_t>((7 * i + i / 5) % (1 << bits)));
      block[0] = 0x00, block[1] = 0x3c;  // 1
      block[2] = 0x00, block[3] = 0xc0;  // -2
      gguf_put_codes(type, codes.data(), block.data());
      float scale = 0, zero = 0;
      gguf_row(type, block.data(), group, found.data(), &scale, &zero);
      EXPECT_EQ(found, codes) << type.name;
      EXPECT_EQ(scale, 1);
      EXPECT_EQ(zero, -2);
    }
}

TEST(GroupTypes, TheNearestNumbersOfAGroup) {
  const std::vector<float> x = normal_numbers(64 * 40, 1);
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    const GgufType& type = *group_type(name_of(bits, 64));
    const Opened o = opened(type, gguf_rounded("x", type, x.data(), 1, std::ssize(x)), std::ssize(x));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto [least, largest] = std::minmax_element(x.begin() + i / 64 * 64, x.begin() + i / 64 * 64 + 64);
      const double step = (static_cast<double>(*largest) - static_cast<double>(*least)) / ((1 << bits) - 1);
      // Half a step, and the roundings of scale and zero to 11 bits.
      EXPECT_NEAR(o.values[i], x[i], 0.5 * step + 0x1p-11 * (8 + step * (1 << bits))) << type.name;
      EXPECT_NEAR(o.scales[i / 64], step, step * 0x1p-11);
    }
  }
}

TEST(GroupTypes, OneBitHasTheMeanSize) {
  const std::vector<float> x = normal_numbers(128, 2);
  const GgufType& type = *group_type("W1G128");
  const Opened o = opened(type, gguf_rounded("x", type, x.data(), 1, 128), 128);
  double mean = 0;
  for (const float value : x) mean += std::fabs(static_cast<double>(value)) / 128;
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(o.values[i], x[i] >= 0 ? mean : -mean, mean * 0x1p-9);
}

TEST(GroupTypes, ASearchLosesLess) {
  const std::vector<float> x = normal_numbers(192 * 64, 3), size = normal_numbers(192, 4);
  std::vector<float> importance(x.size()), of_columns;
  for (const float value : size) of_columns.push_back(std::exp(2 * value));
  for (std::size_t i = 0; i < x.size(); ++i) importance[i] = of_columns[i % 192];
  for (const int bits : widths)
    for (const char* end : {"", "Z"}) {
      const GgufType* const type = group_type(name_of(bits, 64, end));
      if (type == nullptr) continue;
      const auto error = [&](const float* columns) {
        return error_of(x, opened(*type, gguf_rounded("x", *type, x.data(), 64, 192, columns), std::ssize(x)),
                        importance);
      };
      EXPECT_LT(error(of_columns.data()), 0.9 * error(nullptr)) << type->name;
    }
}

TEST(GroupTypes, NumbersOnAGridStay) {
  for (const int bits : {2, 3, 4, 8})
    for (const char* end : {"", "Z"}) {
      const GgufType& type = *group_type(name_of(bits, 32, end));
      std::vector<float> x, ones(32, 1);
      for (int i = 0; i < 32; ++i) x.push_back(0.25F * static_cast<float>(i * 5 % (1 << bits) - (1 << (bits - 1))));
      x[0] = -0.25F * static_cast<float>(1 << (bits - 1));
      x[1] = x[0] + 0.25F * static_cast<float>((1 << bits) - 1);
      for (const float* importance : {static_cast<const float*>(nullptr), static_cast<const float*>(ones.data())})
        EXPECT_EQ(opened(type, gguf_rounded("x", type, x.data(), 1, 32, importance), 32).values, x) << type.name;
    }
}

TEST(GroupTypes, WholeZerosStayInTheirRange) {
  for (const float shift : {-100.0F, -1.0F, 0.0F, 1.0F, 100.0F}) {
    std::vector<float> x = normal_numbers(64, 5), ones(64, 1);
    for (float& value : x) value += shift;
    const GgufType& type = *group_type("W4G64Z");
    for (const float* importance : {static_cast<const float*>(nullptr), static_cast<const float*>(ones.data())}) {
      const std::vector<std::uint8_t> block = gguf_rounded("x", type, x.data(), 1, 64, importance);
      EXPECT_GE(whole_zero_at(block.data()), 1);
      EXPECT_LE(whole_zero_at(block.data()), 16);
    }
  }
}

TEST(GroupTypes, StrangeGroups) {
  const GgufType& type = *group_type("W3G16");
  const std::vector<float> ones(16, 1);
  for (const float* importance : {static_cast<const float*>(nullptr), static_cast<const float*>(ones.data())}) {
    for (const float value : {0.0F, 3.5F, -3.5F, 1e-30F}) {
      const std::vector<float> x(16, value);
      for (const float found : opened(type, gguf_rounded("x", type, x.data(), 1, 16, importance), 16).values)
        EXPECT_NEAR(found, value, std::fabs(value) * 0x1p-11 + 1e-7);
    }
    std::vector<float> x(16, 1);
    x[3] = std::numeric_limits<float>::quiet_NaN();
    expect_sentence(refusal([&] { gguf_rounded("the matrix", type, x.data(), 1, 16, importance); }), "the matrix",
                    "NaN or infinity");
    x[3] = 1e30F;
    expect_sentence(refusal([&] { gguf_rounded("the matrix", type, x.data(), 1, 16, importance); }), "the matrix",
                    "beyond 16-bit floats");
  }
  const std::vector<float> x(24, 1);
  expect_sentence(refusal([&] { gguf_rounded("the matrix", type, x.data(), 1, 24); }), "the matrix", "rows of 24");
}

TEST(GroupTypes, GgufFilesDoNotHoldThem) {
  const Scratch folder;
  const std::vector<float> x(64, 1);
  const GgufType& type = *group_type("W4G64");
  const std::vector<std::uint8_t> blocks = gguf_rounded("x", type, x.data(), 1, 64);
  expect_sentence(refusal([&] {
                    save_gguf(folder.path("x.gguf"), {}, {{"x", {1, 64}, &type, blocks.data(), std::ssize(blocks)}});
                  }),
                  "x.gguf", "W4G64, a type that folders hold");
}

}  // namespace
}  // namespace bie::formats::test
