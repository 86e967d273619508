// Matrices of GGUF files: rows as floats, and products of panels that came straight from the file's blocks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "bie/formats/error.h"
#include "bie/formats/gguf.h"
#include "bie/kernels/weight_only_q8.h"
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

TEST(GgufWeights, Int8ProductsOfEveryTypeAreThoseOfTheReference) {
  // Panels of K-quants have the factors of their scales, those of the reference the products.
  ReplayableRng rng;
  for (const char* type : coded_types) {
    constexpr std::int64_t rows = 67, columns = 768, m = 3;
    const auto file = file_of(type, rows, columns, rng);
    const FileMatrix matrix = matrix_of(file);
    std::vector<float> x(m * columns), found(m * rows), wanted(found.size());
    for (float& v : x) v = static_cast<float>(rng.between(-999, 999)) / 64;
    const Linear linear(matrix, Arithmetic::int8, nullptr, kernels::serial());
    ASSERT_EQ(linear.run(m, x.data(), found.data(), kernels::serial()), kernels::Status::ok);
    const kernels::WeightOnlyGemmKernel& reference = kernels::weight_only_q8_table().back();
    std::vector<std::max_align_t> packed(reference.rows_bytes(matrix.coded()) / sizeof(std::max_align_t) + 1);
    reference.prepack_rows(matrix.coded(), packed.data(), kernels::serial());
    ASSERT_EQ(reference.run({m, rows, columns}, {x.data(), kernels::Dtype::f32, 4 * columns, nullptr}, packed.data(),
                            {wanted.data(), kernels::Dtype::f32, 4 * rows, nullptr}, kernels::serial()),
              kernels::Status::ok);
    ASSERT_EQ(found, wanted) << type;
  }
}

/// A ternary type of files, and where a block has its scale.
struct Ternary {
  const char* type;
  std::int64_t scale_at;
};
constexpr Ternary ternaries[] = {{"TQ1_0", 52}, {"TQ2_0", 64}, {"Q2_0", 0}, {"Q2_0_128", 0}};

void set_scale(const formats::GgufFile& file, const Ternary& of, std::int64_t block, std::uint16_t half) {
  const formats::GgufTensor& tensor = file.tensors.front();
  std::memcpy(tensor.bytes->data + block * tensor.type->bytes + of.scale_at, &half, 2);
}

formats::GgufFile file_of_one_scale(const Ternary& of, std::int64_t rows, std::int64_t columns, ReplayableRng& rng) {
  formats::GgufFile file = file_of(of.type, rows, columns, rng);
  for (std::int64_t block = 0; block < rows * columns / file.tensors.front().type->weights; ++block)
    set_scale(file, of, block, 0x2e66);  // 0.0999755859375
  return file;
}

std::vector<float> int8_product(const formats::GgufFile& file, const std::vector<float>& x, bool one_scale) {
  const FileMatrix matrix = matrix_of(file);
  kernels::ThreadPool pool(3);
  const Linear linear(matrix, Arithmetic::int8, nullptr, pool.parallel(), one_scale);
  const std::int64_t m = static_cast<std::int64_t>(x.size()) / matrix.columns();
  std::vector<float> y(static_cast<std::size_t>(m * matrix.rows()));
  EXPECT_EQ(linear.run(m, x.data(), y.data(), pool.parallel()), kernels::Status::ok);
  return y;
}

TEST(GgufWeights, TernaryTensorsOfOneScaleAreOneExactSum) {
  ReplayableRng rng;
  constexpr std::int64_t rows = 70, columns = 1280;
  for (const std::int64_t m : {1, 3, 40})
    for (const Ternary& of : ternaries) {
      const formats::GgufFile file = file_of_one_scale(of, rows, columns, rng);
      std::vector<float> x(static_cast<std::size_t>(m * columns)), w(columns);
      for (float& v : x) v = static_cast<float>(rng.between(-(1 << 20), 1 << 20)) * 0x1p-18f;
      const std::vector<float> found = int8_product(file, x, true);
      const FileMatrix matrix = matrix_of(file);
      const float s = 0.0999755859375f;
      for (std::int64_t j = 0; j < rows; ++j) {
        matrix.read_row(j, w.data());
        for (std::int64_t i = 0; i < m; ++i) {
          const float* const row = x.data() + i * columns;
          float a = 0;
          for (std::int64_t k = 0; k < columns; ++k) a = std::fmax(a, std::fabs(row[k]));
          const float r = 127 / a, d = a / 127;
          std::int64_t sum = 0;
          for (std::size_t k = 0; k < columns; ++k)
            sum += std::lround(w[k] / s) * static_cast<std::int64_t>(std::nearbyint(row[k] * r));
          ASSERT_EQ(found[static_cast<std::size_t>(i * rows + j)], d * (static_cast<float>(sum) * s))
              << of.type << ", row " << i << ", output " << j;
        }
      }
      ASSERT_NE(found, int8_product(file, x, false)) << of.type;
    }
}

TEST(GgufWeights, OneOtherScaleMakesGroupsOfATensor) {
  ReplayableRng rng;
  constexpr std::int64_t rows = 67, columns = 512;
  std::vector<float> x(2 * columns);
  for (float& v : x) v = static_cast<float>(rng.between(-(1 << 20), 1 << 20)) * 0x1p-18f;
  for (const Ternary& of : ternaries) {
    const formats::GgufFile file = file_of_one_scale(of, rows, columns, rng);
    const std::int64_t blocks = rows * columns / file.tensors.front().type->weights;
    for (const std::int64_t block : {std::int64_t{0}, blocks / 2, blocks - 1}) {
      set_scale(file, of, block, 0x2e67);
      EXPECT_EQ(int8_product(file, x, true), int8_product(file, x, false)) << of.type << ", block " << block;
      set_scale(file, of, block, 0x2e66);
    }
  }
  // A block of zeros fits any scale, but only one whose codes are those of 0.
  const Ternary of = {"Q2_0", 0};
  const formats::GgufFile file = file_of_one_scale(of, rows, columns, rng);
  std::uint8_t* const first = file.tensors.front().bytes->data;
  std::memset(first + 2, 0x55, 16);
  const std::vector<float> wanted = int8_product(file, x, true);
  set_scale(file, of, 0, 0);
  EXPECT_EQ(int8_product(file, x, true), wanted);
  first[2] = 0x54;
  EXPECT_EQ(int8_product(file, x, true), int8_product(file, x, false));
  const auto other = file_of("Q4_0", rows, columns, rng);
  EXPECT_EQ(int8_product(other, x, true), int8_product(other, x, false));
  std::memset(first, 0, static_cast<std::size_t>(file.tensors.front().bytes->size));  // every scale is 0
  EXPECT_EQ(int8_product(file, x, true), std::vector<float>(2 * rows, 0.0f));
}

TEST(GgufWeights, RowsThatAreTooLongForOneSumKeepTheirGroups) {
  ReplayableRng rng;
  const std::int64_t columns = kernels::most_q8_rows + 256;
  const formats::GgufFile file = file_of_one_scale(ternaries[1], 2, columns, rng);
  std::vector<float> x(static_cast<std::size_t>(columns));
  for (float& v : x) v = static_cast<float>(rng.between(-127, 127)) / 64;
  EXPECT_EQ(int8_product(file, x, true), int8_product(file, x, false));
}

TEST(GgufWeights, NanInAScaleOfATernaryTensorIsRefused) {
  ReplayableRng rng;
  for (const Ternary& of : ternaries) {
    const formats::GgufFile file = file_of_one_scale(of, 3, 512, rng);
    set_scale(file, of, 512 / file.tensors.front().type->weights, 0x7e00);
    try {
      int8_product(file, std::vector<float>(512, 1.0f), true);
      ADD_FAILURE() << of.type;
    } catch (const formats::Error& error) {
      EXPECT_EQ(std::string(error.what()), "GGUF file a.gguf: tensor \"w\" holds NaN or infinity in a scale of row 1");
    }
  }
}

TEST(GgufWeights, SixteenBitFloatsStaySuchAndGiveTheProductsOfFloats) {
  ReplayableRng rng;
  constexpr std::int64_t rows = 35, columns = 100, m = 5;
  std::vector<float> x(m * columns);
  for (float& v : x) v = static_cast<float>(rng.between(-(1 << 20), 1 << 20)) * 0x1p-18f;
  for (const char* type : {"F16", "BF16"}) {
    const formats::GgufFile file = file_of(type, rows, columns, rng);
    const FileMatrix matrix = matrix_of(file);
    std::vector<float> values(rows * columns);
    for (std::int64_t j = 0; j < rows; ++j) matrix.read_row(j, values.data() + j * columns);
    formats::GgufFile wide;
    auto bytes = std::make_shared<formats::Bytes>();
    bytes->data = reinterpret_cast<std::uint8_t*>(values.data());
    bytes->size = 4 * rows * columns;
    wide.tensors.push_back({"w", {rows, columns}, formats::gguf_type("F32"), bytes});
    const Linear linear(matrix, Arithmetic::int8, nullptr, kernels::serial());
    const Linear other(matrix_of(wide), Arithmetic::int8, nullptr, kernels::serial());
    EXPECT_EQ(2 * linear.bytes(), other.bytes()) << type;
    std::vector<float> y(m * rows), wanted(y);
    ASSERT_EQ(linear.run(m, x.data(), y.data(), kernels::serial()), kernels::Status::ok);
    ASSERT_EQ(other.run(m, x.data(), wanted.data(), kernels::serial()), kernels::Status::ok);
    EXPECT_EQ(y, wanted) << type;
  }
}

TEST(GgufWeights, FloatsAtAnOddAddress) {
  const float values[] = {1, 2, 3, 4, 5, 6};
  auto memory = std::make_shared<std::vector<std::uint8_t>>(sizeof values + 1);
  std::memcpy(memory->data() + 1, values, sizeof values);
  formats::GgufFile file;
  file.tensors.push_back({"w",
                          {2, 3},
                          formats::gguf_type("F32"),
                          std::make_shared<formats::Bytes>(formats::Bytes{memory->data() + 1, sizeof values, memory})});
  const Linear linear(matrix_of(file), Arithmetic::exact, nullptr, kernels::serial());
  const float x[] = {1, 10, 100};
  float y[2];
  ASSERT_EQ(linear.run(1, x, y, kernels::serial()), kernels::Status::ok);
  EXPECT_EQ(std::vector<float>(y, y + 2), (std::vector<float>{321, 654}));
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
