// Sign bits and int4 nibbles: one-hot probes, whole rows against the formula, nothing written beyond the output.
#include "bie/kernels/packing.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

#include "bie/kernels/sign_layout.h"
#include "every_kernel.h"
#include "formulas.h"
#include "gemm_sweep.h"
#include "replayable_rng.h"

namespace bie::kernels::test {
namespace {

constexpr Dtype sign_inputs[] = {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::s8};
const std::int64_t lengths[] = {0,  1,  7,  8,   9,   15,  16,   17,   31,   32,  33,
                                63, 64, 65, 127, 129, 255, 2047, 2048, 2049, 4101};

struct SignRows {
  RowsShape shape;
  Dtype dtype;
  std::int64_t row_stride;
  std::vector<unsigned char> x;
  std::vector<float> bias;  ///< empty: none

  SignRows(std::int64_t rows, std::int64_t k, Dtype type, std::int64_t gap)
      : shape{rows, k}, dtype(type), row_stride(row_bytes(type, k + gap)) {
    x.resize(static_cast<std::size_t>(rows == 0 ? 0 : (rows - 1) * row_stride + row_bytes(type, k)));
  }
  void set(std::int64_t row, std::int64_t i, float value) {
    if (dtype == Dtype::s8)
      write_code(x.data() + row * row_stride, dtype, i, static_cast<int>(value));
    else
      write_float(x.data() + row * row_stride, dtype, i, value);
  }
  std::vector<unsigned char> expected() const {
    const std::int64_t bytes = row_bytes(Dtype::bits, shape.k);
    std::vector<unsigned char> packed(static_cast<std::size_t>(shape.rows * bytes));
    for (std::int64_t row = 0; row < shape.rows; ++row)
      for (std::int64_t i = 0; i < shape.k; ++i) {
        const float value = read_float(x.data() + row * row_stride, dtype, i);
        const bool biased = !bias.empty() && dtype != Dtype::s8;
        write_code(packed.data() + row * bytes, Dtype::bits, i,
                   sign_bit_of(biased ? value + bias[static_cast<std::size_t>(i)] : value) - 1);
      }
    return packed;
  }
  void expect_every_kernel(const std::vector<unsigned char>& packed, const Parallel& parallel = serial()) const {
    for_every_kernel(sign_pack_table(), [&](const SignPackKernel& kernel) {
      GuardedBytes out(packed.size());
      const float* b = bias.empty() ? nullptr : bias.data();
      ASSERT_EQ(kernel.run(shape, x.data(), dtype, row_stride, b, out.data(), parallel), Status::ok);
      ASSERT_TRUE(same_bytes(packed, out)) << shape.rows << " rows of " << shape.k << ", " << name(dtype);
    });
  }
};

TEST(SignPack, OnePositiveElementIsOneBit) {
  const std::int64_t k = 77;
  for (const Dtype dtype : sign_inputs)
    for (std::int64_t i = 0; i < k; ++i) {
      SignRows rows(2, k, dtype, 0);
      for (std::int64_t j = 0; j < k; ++j) {
        rows.set(0, j, -1);
        rows.set(1, j, -1);
      }
      rows.set(1, i, 1);
      std::vector<unsigned char> packed(20);
      packed[static_cast<std::size_t>(10 + i / 8)] = static_cast<unsigned char>(1 << i % 8);
      rows.expect_every_kernel(packed);
    }
}

TEST(SignPack, ZerosAreOneAndNanIsZero) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    SignRows rows(1, 42, dtype, 0);
    const float values[] = {0.0f, -0.0f, nan, -nan, infinity, -infinity};
    for (std::int64_t i = 0; i < 42; ++i) rows.set(0, i, values[i % 6]);
    // 1 1 0 0 1 0 seven times, the lowest bit first
    rows.expect_every_kernel({0xd3, 0x34, 0x4d, 0xd3, 0x34, 0x01});
  }
  SignRows bytes(1, 9, Dtype::s8, 0);
  const int codes[] = {0, 1, -1, 127, -128, 0, -5, 5, -1};
  for (std::int64_t i = 0; i < 9; ++i) bytes.set(0, i, static_cast<float>(codes[i]));
  bytes.expect_every_kernel({0xab, 0x00});
}

TEST(SignPack, RandomRowsOfEveryLength) {
  ReplayableRng rng;
  for (const Dtype dtype : sign_inputs)
    for (const std::int64_t k : lengths)
      for (const std::int64_t gap : {0, 5})
        for (const bool with_bias : {false, true}) {
          SignRows rows(3, k, dtype, gap);
          rows.x = rng.bytes(static_cast<std::int64_t>(rows.x.size()));
          for (std::int64_t i = 0; i < 3 * k && dtype != Dtype::s8; ++i)
            rows.set(i / k, i % k, random_activation(-2, 2, 0.5f, dtype, rng));
          for (std::int64_t i = 0; i < k && with_bias; ++i) rows.bias.push_back(random_bias(0.5f, rng));
          rows.expect_every_kernel(rows.expected());
          if (testing::Test::HasFailure()) return;
        }
}

TEST(SignPack, EverySixteenBitPattern) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    SignRows rows(1, 65536, dtype, 0);
    for (std::size_t code = 0; code < 65536; ++code) {
      rows.x[2 * code] = static_cast<unsigned char>(code);
      rows.x[2 * code + 1] = static_cast<unsigned char>(code >> 8);
    }
    rows.expect_every_kernel(rows.expected());
  }
}

TEST(SignPack, ThreadsDoNotShowInTheResult) {
  ReplayableRng rng;
  SignRows rows(301, 777, Dtype::s8, 1);
  rows.x = rng.bytes(static_cast<std::int64_t>(rows.x.size()));
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    rows.expect_every_kernel(rows.expected(), pool.parallel());
  }
}

TEST(SignPack, OtherDtypesAreRefused) {
  for_every_kernel(sign_pack_table(), [](const SignPackKernel& kernel) {
    for (const Dtype dtype : {Dtype::s4, Dtype::bits, Dtype::s32}) {
      GuardedBytes out(2);
      const float x[16] = {};
      EXPECT_EQ(kernel.run({1, 16}, x, dtype, 64, nullptr, out.data(), serial()), Status::bad_dtype) << name(dtype);
      EXPECT_TRUE(out.untouched());
    }
  });
}

TEST(SignPack, UnpackingIsTheInverse) {
  ReplayableRng rng;
  ThreadPool pool(2);
  for (const std::int64_t k : lengths) {
    const std::int64_t bytes = row_bytes(Dtype::bits, k);
    const std::vector<unsigned char> packed = rng.bytes(40 * bytes);  // pad bits too
    GuardedBytes signs(static_cast<std::size_t>(40 * k));
    unpack_signs({40, k}, packed.data(), reinterpret_cast<std::int8_t*>(signs.data()), pool.parallel());
    std::vector<unsigned char> expected;
    for (std::int64_t i = 0; i < 40 * k; ++i)
      expected.push_back(static_cast<unsigned char>(read_code(packed.data() + i / k * bytes, Dtype::bits, i % k)));
    ASSERT_TRUE(same_bytes(expected, signs)) << k;
  }
}

void expect_int4_rows(const RowsShape& shape, const std::vector<unsigned char>& codes,
                      const std::vector<unsigned char>& packed, const Parallel& parallel = serial()) {
  for_every_kernel(int4_pack_table(), [&](const Int4PackKernel& kernel) {
    GuardedBytes out(packed.size());
    ASSERT_EQ(kernel.run(shape, reinterpret_cast<const std::int8_t*>(codes.data()), out.data(), parallel), Status::ok);
    ASSERT_TRUE(same_bytes(packed, out)) << shape.rows << " rows of " << shape.k;
  });
}

/// Byte by byte: the even element high, the odd one low, the low four bits of each.
std::vector<unsigned char> expected_int4(const RowsShape& shape, const std::vector<unsigned char>& codes) {
  const std::int64_t bytes = row_bytes(Dtype::s4, shape.k);
  std::vector<unsigned char> packed(static_cast<std::size_t>(shape.rows * bytes));
  for (std::int64_t i = 0; i < shape.rows * shape.k; ++i)
    write_code(packed.data() + i / shape.k * bytes, Dtype::s4, i % shape.k, codes[static_cast<std::size_t>(i)]);
  return packed;
}

TEST(Int4Pack, OneElementIsOneNibble) {
  const std::int64_t k = 77;
  for (std::int64_t i = 0; i < k; ++i)
    for (const int code : {1, 2, 4, -8, -1}) {
      std::vector<unsigned char> codes(2 * k), packed(2 * 39);
      codes[static_cast<std::size_t>(k + i)] = static_cast<unsigned char>(code);
      packed[static_cast<std::size_t>(39 + i / 2)] =
          static_cast<unsigned char>(i % 2 == 0 ? (code & 15) << 4 : code & 15);
      expect_int4_rows({2, k}, codes, packed);
    }
}

// Random bytes: only the low four bits of a code count.
TEST(Int4Pack, RandomRowsOfEveryLength) {
  ReplayableRng rng;
  for (const std::int64_t k : lengths) {
    const std::vector<unsigned char> codes = rng.bytes(5 * k);
    expect_int4_rows({5, k}, codes, expected_int4({5, k}, codes));
  }
}

TEST(Int4Pack, ThreadsDoNotShowInTheResult) {
  ReplayableRng rng;
  const RowsShape shape = {301, 777};
  const std::vector<unsigned char> codes = rng.bytes(shape.rows * shape.k), packed = expected_int4(shape, codes);
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    expect_int4_rows(shape, codes, packed, pool.parallel());
  }
}

TEST(Int4Pack, UnpackingIsTheInverse) {
  ReplayableRng rng;
  ThreadPool pool(2);
  for (const std::int64_t k : lengths) {
    const RowsShape shape = {40, k};
    std::vector<unsigned char> codes = rng.bytes(40 * k);
    for (unsigned char& code : codes) code = static_cast<unsigned char>(static_cast<signed char>(code) / 16);
    std::vector<unsigned char> packed = expected_int4(shape, codes);
    for (std::int64_t row = 0; row < 40 && k % 2 == 1; ++row)
      write_code(packed.data() + row * row_bytes(Dtype::s4, k), Dtype::s4, k, -1);  // the pad nibble
    GuardedBytes found(codes.size());
    unpack_int4(shape, packed.data(), reinterpret_cast<std::int8_t*>(found.data()), pool.parallel());
    ASSERT_TRUE(same_bytes(codes, found)) << k;
  }
}

TEST(Packing, NegativeSizesAreRefusedByEveryKernel) {
  for (const RowsShape& shape : {RowsShape{-1, 4}, RowsShape{4, -1}, RowsShape{4, -9}}) {
    GuardedBytes out(16);
    const float x[16] = {};
    for_every_kernel(sign_pack_table(), [&](const SignPackKernel& kernel) {
      EXPECT_EQ(kernel.run(shape, x, Dtype::f32, 16, nullptr, out.data(), serial()), Status::bad_shape);
    });
    for_every_kernel(int4_pack_table(), [&](const Int4PackKernel& kernel) {
      const std::int8_t* codes = reinterpret_cast<const std::int8_t*>(x);
      EXPECT_EQ(kernel.run(shape, codes, out.data(), serial()), Status::bad_shape);
    });
    EXPECT_TRUE(out.untouched());
  }
}

// Bytes of a layout in its own order, as its documentation writes it: the row and the byte of the row that each holds.
std::vector<std::pair<std::int64_t, std::int64_t>> order_of(SignLayout layout, std::int64_t rows, std::int64_t bytes) {
  std::vector<std::pair<std::int64_t, std::int64_t>> order;
  if (layout == SignLayout::btc) {
    for (std::int64_t eight = 0; eight < rows / 8; ++eight)
      for (std::int64_t part = 0; part < bytes / 16; ++part)
        for (std::int64_t row = 0; row < 8; ++row)
          for (std::int64_t byte = 0; byte < 16; ++byte) order.emplace_back(8 * eight + row, 16 * part + byte);
  } else if (layout == SignLayout::bstc) {
    for (std::int64_t word = 0; word < bytes / 4; ++word)
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t byte = 0; byte < 4; ++byte) order.emplace_back(row, 4 * word + byte);
  } else {
    for (std::int64_t byte = 0; byte < bytes; ++byte)
      for (std::int64_t row = 0; row < rows; ++row) order.emplace_back(row, byte);
  }
  return order;
}

TEST(SignLayouts, EveryByteAndBitHasItsPlace) {
  ReplayableRng rng;
  const kernels::SignRows cases[] = {{SignLayout::btc, 16, 32, 16},  {SignLayout::btc, 640, 160, 640},
                                     {SignLayout::bstc, 33, 8, 64},  {SignLayout::bstc, 1000, 100, 1024},
                                     {SignLayout::columns, 7, 3, 7}, {SignLayout::columns, 999, 131, 999}};
  for (const kernels::SignRows& c : cases) {
    const std::vector<unsigned char> packed = rng.bytes(c.n * c.row_bytes);
    std::vector<unsigned char> bytes;
    for (const auto& [row, byte] : order_of(c.layout, c.layout_rows, c.row_bytes)) {
      const unsigned char from = row < c.n ? packed[static_cast<std::size_t>(row * c.row_bytes + byte)] : 0;
      unsigned char reversed = 0;
      for (int bit = 0; bit < 8; ++bit) reversed |= static_cast<unsigned char>((from >> bit & 1) << (7 - bit));
      bytes.push_back(c.layout == SignLayout::columns ? from : reversed);
    }
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      GuardedBytes to(bytes.size()), from(packed.size());
      ASSERT_EQ(signs_to_layout(c, packed.data(), to.data(), pool.parallel()), Status::ok);
      EXPECT_TRUE(same_bytes(bytes, to));
      ASSERT_EQ(signs_from_layout(c, bytes.data(), from.data(), pool.parallel()), Status::ok);
      EXPECT_TRUE(same_bytes(packed, from));
    }
  }
  EXPECT_EQ(signs_to_layout({SignLayout::columns, 1, 1, -1}, nullptr, nullptr, serial()), Status::bad_shape);
  EXPECT_EQ(signs_from_layout({SignLayout::columns, -1, 1, 1}, nullptr, nullptr, serial()), Status::bad_shape);
  EXPECT_EQ(signs_from_layout({SignLayout::columns, 1, -1, 1}, nullptr, nullptr, serial()), Status::bad_shape);
}

}  // namespace
}  // namespace bie::kernels::test
