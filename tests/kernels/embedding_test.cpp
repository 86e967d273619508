// Tables of signs: rows looked up, and the step of DiodeMix on the rows a batch used.
#include "bie/kernels/embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "elements.h"
#include "every_kernel.h"

namespace bie::kernels::test {
namespace {

/// A table with random pad bits; signs are kept beside it.
struct Signs {
  SignTable table;
  std::vector<unsigned char> bytes;

  Signs(std::int64_t rows, std::int64_t dim, bool is_packed, ReplayableRng& rng)
      : table{nullptr, rows, dim, is_packed}, bytes(rng.bytes(rows * table.row_size())) {
    if (!is_packed)
      for (unsigned char& byte : bytes) byte &= 1;
    table.rows = bytes.data();
  }
  Signs(const Signs& o) : table(o.table), bytes(o.bytes) { table.rows = bytes.data(); }
  bool get(std::int64_t row, std::int64_t i) const {
    const auto at = static_cast<std::size_t>(row * table.row_size());
    return table.is_packed ? (bytes[at + static_cast<std::size_t>(i / 8)] >> (i % 8) & 1) != 0
                           : bytes[at + static_cast<std::size_t>(i)] != 0;
  }
};

TEST(Embedding, EveryKernelLooksUp) {
  ReplayableRng rng;
  for (const std::int64_t dim : {1, 7, 8, 65, 300})
    for (const bool is_packed : {true, false})
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
        Signs signs(13, dim, is_packed, rng);
        const Elements scales = random_elements(Dtype::f32, 13, 1, rng);
        std::vector<std::int64_t> indices;
        for (int i = 0; i < 40; ++i) indices.push_back(rng.between(0, 12));
        const std::int64_t padding = rng.between(-1, 12);
        for_every_kernel(embedding_table(), [&](const EmbeddingKernel& kernel) {
          GuardedBytes y(static_cast<std::size_t>(row_bytes(dtype, 40 * dim)));
          ASSERT_EQ(kernel.lookup(signs.table, scales.floats(), indices.data(), 40, padding, y.data(), dtype, serial()),
                    Status::ok);
          std::vector<unsigned char> wanted(y.bytes().size());
          for (std::int64_t r = 0; r < 40; ++r)
            for (std::int64_t i = 0; i < dim; ++i) {
              const std::int64_t index = indices[static_cast<std::size_t>(r)];
              const float scale = scales.get(index);
              write_float(wanted.data(), dtype, r * dim + i,
                          index == padding      ? 0.0f
                          : signs.get(index, i) ? scale
                                                : -scale);
            }
          ASSERT_TRUE(same_bytes(wanted, y)) << dim;
        });
      }
}

TEST(Embedding, StepMovesTheRowsThatAreTold) {
  ReplayableRng rng;
  for (const std::int64_t dim : {1, 7, 8, 65, 300})
    for (const bool is_packed : {true, false})
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        const Signs before(9, dim, is_packed, rng);
        const std::int64_t stride = dim + 3;
        const Elements moment = random_elements(dtype, 9 * stride, 1, rng),
                       votes = random_elements(Dtype::f32, 3 * dim, 1, rng);
        const std::int64_t rows[] = {7, 2, 4};
        for_every_pool([&](const Parallel& parallel) {
          for_every_kernel(embedding_table(), [&](const EmbeddingKernel& kernel) {
            Signs signs(before);
            Elements s = moment;
            const float lr = 0.75f, d2 = 0.25f;
            ASSERT_EQ(kernel.step(signs.table, {rows, 3, votes.floats(), s.bytes.data(), dtype, stride, lr, d2, 99},
                                  parallel),
                      Status::ok);
            for (std::int64_t r = 0; r < 9; ++r) {
              const std::int64_t at = r == 7 ? 0 : r == 2 ? 1 : r == 4 ? 2 : -1;
              for (std::int64_t i = 0; i < dim; ++i) {
                const float old = moment.get(r * stride + i), found = s.get(r * stride + i);
                if (at < 0) {
                  ASSERT_EQ(found, old);
                  ASSERT_EQ(signs.get(r, i), before.get(r, i));
                  continue;
                }
                const double vote = votes.get(at * dim + i) >= 0 ? lr : -lr;
                const double step =
                    f32(static_cast<double>(d2) * static_cast<double>(f32(vote - static_cast<double>(old))));
                const float wanted = f32(static_cast<double>(old) + step);
                if (dtype == Dtype::f32)
                  ASSERT_EQ(found, wanted);
                else
                  ASSERT_LE(std::fabs(found - wanted), std::ldexp(std::fabs(wanted), -7));
                ASSERT_EQ(signs.get(r, i), !(wanted > 0));
              }
              if (is_packed && dim % 8 != 0) {
                const auto last = static_cast<std::size_t>((r + 1) * signs.table.row_size() - 1);
                ASSERT_EQ(signs.bytes[last] >> (dim % 8), before.bytes[last] >> (dim % 8)) << "pad bits moved";
              }
            }
          });
        });
      }
}

TEST(Embedding, WrongArguments) {
  ReplayableRng rng;
  Signs signs(4, 8, true, rng);
  const std::vector<unsigned char> before = signs.bytes;
  const float scales[4] = {1, 1, 1, 1}, votes[8] = {};
  float s[32] = {};
  for_every_kernel(embedding_table(), [&](const EmbeddingKernel& kernel) {
    GuardedBytes y(8 * 4);
    for (const std::int64_t index : {-1, 4}) {
      EXPECT_EQ(kernel.lookup(signs.table, scales, &index, 1, -1, y.data(), Dtype::f32, serial()), Status::bad_shape);
      EXPECT_EQ(kernel.step(signs.table, {&index, 1, votes, s, Dtype::f32, 8, 1, 1, 0}, serial()), Status::bad_shape);
    }
    const std::int64_t fine = 0;
    EXPECT_EQ(kernel.lookup(signs.table, scales, &fine, 1, -1, y.data(), Dtype::s8, serial()), Status::bad_dtype);
    EXPECT_EQ(kernel.step(signs.table, {&fine, 1, votes, s, Dtype::f16, 8, 1, 1, 0}, serial()), Status::bad_dtype);
    EXPECT_EQ(kernel.step(signs.table, {&fine, 1, votes, s, Dtype::f32, 7, 1, 1, 0}, serial()), Status::bad_shape);
    EXPECT_TRUE(y.untouched());
    EXPECT_EQ(signs.bytes, before);
  });
}

}  // namespace
}  // namespace bie::kernels::test
