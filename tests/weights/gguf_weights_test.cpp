// Matrices of GGUF files: rows as floats, and products of panels that came straight from the file's blocks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "bie/formats/error.h"
#include "bie/formats/gguf.h"
#include "bie/weights/linear.h"
#include "tests/kernels/replayable_rng.h"

namespace bie::weights {
namespace {

using formats::GgufType;
using kernels::test::ReplayableRng;

constexpr const char* coded_types[] = {"Q4_0",     "Q4_1",   "Q5_0",   "Q5_1",  "Q8_0",  "Q2_K", "Q3_K",
                                       "Q4_K",     "Q5_K",   "Q6_K",   "TQ1_0", "TQ2_0", "Q1_0", "Q2_0",
                                       "Q2_0_128", "IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4"};

/// Random blocks, whose 16-bit floats are finite: exponents of all ones are bent away.
formats::GgufFile file_of(const char* type_name, std::int64_t rows, std::int64_t columns, ReplayableRng& rng) {
  const GgufType* type = formats::gguf_type(type_name);
  const std::int64_t count = rows * columns / type->weights * type->bytes;
  auto bytes = std::make_shared<std::vector<std::uint8_t>>(static_cast<std::size_t>(count));
  for (std::uint8_t& byte : *bytes) byte = static_cast<std::uint8_t>(rng.between(0, 255) & 0xbf);
  formats::GgufFile file;
  file.path = "a.gguf";
  file.tensors.push_back(
      {"w", {rows, columns}, type, std::make_shared<formats::Bytes>(formats::Bytes{bytes->data(), count, bytes})});
  return file;
}

FileMatrix matrix_of(const formats::GgufFile& file) { return {"GGUF file a.gguf: tensor \"w\"", file.tensors.front()}; }

TEST(GgufWeights, RowsAreTheFormulaOfTheirCodes) {
  ReplayableRng rng;
  for (const char* type : coded_types) {
    const auto file = file_of(type, 3, 512, rng);
    const formats::CodedRows w = formats::gguf_codes(file, file.tensors.front());
    const FileMatrix matrix = matrix_of(file);
    std::vector<float> row(512);
    for (std::int64_t r = 0; r < 3; ++r) {
      matrix.read_row(r, row.data());
      for (std::int64_t c = 0; c < 512; ++c) {
        const auto at = static_cast<std::size_t>(r * w.groups() + c / w.group);
        const auto q = static_cast<int>(formats::code_at(w.words.data() + r * w.row_words(), w.bits, c));
        const float product = w.scales[at] * static_cast<float>(w.zeros.empty() ? q - w.zero : q);
        const float wanted = w.zeros.empty() ? product : product - w.zeros[at];
        ASSERT_EQ(row[static_cast<std::size_t>(c)], wanted) << type << ", row " << r << ", column " << c;
      }
    }
  }
}

TEST(GgufWeights, ProductsAreThoseOfTheOpenedWeight) {
  ReplayableRng rng;
  kernels::ThreadPool pool(3);
  for (const char* type : coded_types) {
    constexpr std::int64_t rows = 67, columns = 512;
    const auto file = file_of(type, rows, columns, rng);
    const FileMatrix matrix = matrix_of(file);
    const Linear linear(matrix, Arithmetic::exact, nullptr, pool.parallel());
    std::vector<float> x(columns), y(rows), w(columns);
    for (float& v : x) v = static_cast<float>(rng.between(-128, 128)) / 64;
    ASSERT_EQ(linear.run(1, x.data(), y.data(), pool.parallel()), kernels::Status::ok);
    for (std::int64_t j = 0; j < rows; ++j) {
      matrix.read_row(j, w.data());
      double sum = 0, size = 0;
      for (std::size_t i = 0; i < columns; ++i) {
        sum += static_cast<double>(x[i]) * static_cast<double>(w[i]);
        size += std::fabs(static_cast<double>(x[i])) * (std::fabs(static_cast<double>(w[i])));
      }
      // A code and its offset are far larger than their difference may be.
      ASSERT_NEAR(static_cast<double>(y[static_cast<std::size_t>(j)]), sum, size * 1e-4 + 1e-6) << type;
    }
  }
}

TEST(GgufWeights, Int8ProductsOfBlocksAreExactWhereTheActivationIsWhole) {
  // Activations of -127 ... 127 with 127 in each group have a step of 1 and are their own codes.
  ReplayableRng rng;
  const auto file = file_of("Q8_0", 70, 64, rng);
  const FileMatrix matrix = matrix_of(file);
  const Linear linear(matrix, Arithmetic::int8, nullptr, kernels::serial());
  std::vector<float> x(64), y(70), w(64);
  for (float& v : x) v = static_cast<float>(rng.between(-127, 127));
  x[0] = x[32] = 127;
  ASSERT_EQ(linear.run(1, x.data(), y.data(), kernels::serial()), kernels::Status::ok);
  for (std::int64_t j = 0; j < 70; ++j) {
    matrix.read_row(j, w.data());
    double sum = 0, size = 0;
    for (std::size_t i = 0; i < 64; ++i) {
      sum += static_cast<double>(x[i]) * static_cast<double>(w[i]);
      size += std::fabs(static_cast<double>(x[i]) * static_cast<double>(w[i]));
    }
    ASSERT_NEAR(static_cast<double>(y[static_cast<std::size_t>(j)]), sum, size * 0x1p-21);
  }
}

TEST(GgufWeights, Int8ProductsOfTernaryCodesAndSignsAreRoundedOnceAGroup) {
  ReplayableRng rng;
  for (const char* type : {"TQ1_0", "TQ2_0", "Q2_0", "Q2_0_128", "Q1_0"}) {
    const auto file = file_of(type, 70, 256, rng);
    const FileMatrix matrix = matrix_of(file);
    const Linear linear(matrix, Arithmetic::int8, nullptr, kernels::serial());
    std::vector<float> x(256, 0), y(70), w(256);
    // Whole numbers in one group, 127 among them, have a step of 1 and are their own codes.
    const auto group = static_cast<std::size_t>(formats::gguf_type(type)->group);
    for (std::size_t i = 0; i < group; ++i) x[i] = static_cast<float>(rng.between(-127, 127));
    x[0] = 127;
    ASSERT_EQ(linear.run(1, x.data(), y.data(), kernels::serial()), kernels::Status::ok);
    for (std::int64_t j = 0; j < 70; ++j) {
      matrix.read_row(j, w.data());
      double sum = 0;  // of whole numbers times one float of 11 bits: exact
      for (std::size_t i = 0; i < group; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(w[i]);
      ASSERT_EQ(y[static_cast<std::size_t>(j)], static_cast<float>(sum)) << type << ", output " << j;
    }
  }
}

TEST(GgufWeights, FloatsAndTheirBias) {
  const float values[] = {1, 2, 3, 4, 5, 6};
  auto bytes = std::make_shared<formats::Bytes>();
  bytes->data = reinterpret_cast<std::uint8_t*>(const_cast<float*>(values));
  bytes->size = sizeof values;
  formats::GgufFile file;
  file.path = "a.gguf";
  file.tensors.push_back({"w", {2, 3}, formats::gguf_type("F32"), bytes});
  const std::shared_ptr<float[]> bias(new float[2]{10, 20});
  for (const Arithmetic arithmetic : {Arithmetic::exact, Arithmetic::int8}) {
    const Linear linear(matrix_of(file), arithmetic, bias, kernels::serial());
    const float x[] = {1, 0, -1, 0, 1, 0};
    float y[4];
    ASSERT_EQ(linear.run(2, x, y, kernels::serial()), kernels::Status::ok);
    EXPECT_EQ(std::vector<float>(y, y + 4), (std::vector<float>{8, 18, 12, 25}));
  }
}

std::string refusal(const formats::GgufFile& file) {
  try {
    const FileMatrix matrix = matrix_of(file);
    const Linear linear(matrix, Arithmetic::exact, nullptr, kernels::serial());
  } catch (const formats::Error& error) {
    return error.what();
  }
  return "nothing";
}

TEST(GgufWeights, RefusalsNameFileAndTensor) {
  ReplayableRng rng;
  auto file = file_of("Q4_0", 3, 64, rng);
  file.tensors.front().bytes->data[18 * 3 + 1] = 0x7c;  // row 1, the second block
  EXPECT_EQ(refusal(file), "GGUF file a.gguf: tensor \"w\" holds NaN or infinity in a scale of row 1");
  auto cube = file_of("Q4_0", 4, 32, rng);
  cube.tensors.front().sizes = {2, 2, 32};
  EXPECT_EQ(refusal(cube), "GGUF file a.gguf: tensor \"w\": expected a matrix, got [2, 2, 32]");
  const auto unread = file_of("IQ2_S", 2, 256, rng);
  EXPECT_EQ(refusal(unread),
            "GGUF file a.gguf: tensor \"w\" is IQ2_S; expected codes with scales, or float32, float16 or bfloat16");
}

}  // namespace
}  // namespace bie::weights
