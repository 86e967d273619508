// Norms, rotations, gates and attention of decoders: the reference against float64, and every kernel against the
// reference bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <vector>

#include "bie/kernels/attention_q8.h"
#include "bie/kernels/decoder_rows.h"
#include "bie/kernels/exact_math.h"
#include "elements.h"
#include "every_kernel.h"
#include "kernels/arithmetic/float_bits.h"

namespace bie::kernels::test {
namespace {

constexpr float nan_float = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_floats(std::int64_t count, float size, ReplayableRng& rng) {
  const Elements x = random_elements(Dtype::f32, count, size, rng);
  return {x.floats(), x.floats() + count};
}

/// Bit for bit, any NaN being like any other.
void expect_same(const std::vector<float>& found, const std::vector<float>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(found[i]) && std::isnan(wanted[i])) continue;
    ASSERT_EQ(std::memcmp(&found[i], &wanted[i], sizeof(float)), 0) << i << ": " << found[i] << ", " << wanted[i];
  }
}

TEST(ExactMath, TheExponentialIsWithinOneUlp) {
  ReplayableRng rng;
  for (int i = 0; i < 200000; ++i) {
    const float x = static_cast<float>(rng.between(-8733000, 8872000)) * 1e-5f;
    if (x < -87.33f || x > 88.72f) continue;
    const double wanted = std::exp(static_cast<double>(x));
    const float near = static_cast<float>(wanted), ulp = std::nextafter(near, INFINITY) - near;
    ASSERT_LE(std::fabs(static_cast<double>(exact_exp(x)) - wanted), static_cast<double>(ulp)) << x;
  }
}

TEST(ExactMath, TheExponentialHasItsEnds) {
  EXPECT_EQ(exact_exp(0.0f), 1.0f);
  EXPECT_EQ(exact_exp(-0.0f), 1.0f);
  EXPECT_EQ(exact_exp(std::nextafter(-87.33f, -100.0f)), 0.0f);
  EXPECT_GT(exact_exp(-87.33f), 0x1p-126f);
  EXPECT_TRUE(std::isfinite(exact_exp(88.72f)));
  EXPECT_EQ(exact_exp(std::nextafter(88.72f, 100.0f)), INFINITY);
  EXPECT_EQ(exact_exp(-INFINITY), 0.0f);
  EXPECT_EQ(exact_exp(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(exact_exp(nan_float)));
  // The bits are the law's, whatever the machine.
  EXPECT_EQ(exact_exp(1.0f), 0x1.5bf0a8p+1f);
  EXPECT_EQ(exact_exp(-10.0f), 0x1.7cd79cp-15f);
}

TEST(ExactMath, TheTangentIsWithinFourUlps) {
  ReplayableRng rng;
  for (int i = 0; i < 200000; ++i) {
    const auto bits = static_cast<std::uint32_t>(rng.between(0, 0x41200000));  // 0 to 10
    const float x = float_from_bits(bits);
    const double wanted = std::tanh(static_cast<double>(x));
    const float near = static_cast<float>(wanted), ulp = std::nextafter(near, 2.0f) - near;
    ASSERT_LE(std::fabs(static_cast<double>(exact_tanh(x)) - wanted), 3.3 * static_cast<double>(ulp)) << x;
    ASSERT_EQ(exact_tanh(-x), -exact_tanh(x)) << x;
    ASSERT_LE(exact_tanh(x), 1.0f) << x;
  }
}

TEST(ExactMath, TheTangentHasItsEnds) {
  for (const float x : {9.1f, 20.0f, 1000.0f, INFINITY}) EXPECT_EQ(exact_tanh(x), 1.0f) << x;
  EXPECT_EQ(exact_tanh(-INFINITY), -1.0f);
  EXPECT_TRUE(std::signbit(exact_tanh(-0.0f)));
  EXPECT_FALSE(std::signbit(exact_tanh(0.0f)));
  EXPECT_EQ(exact_tanh(0x1p-149f), 0x1p-149f);
  EXPECT_TRUE(std::isnan(exact_tanh(nan_float)));
  EXPECT_EQ(exact_tanh(0.5f), 0x1.d9353cp-2f);
  EXPECT_EQ(exact_tanh(-2.0f), -0x1.ed9506p-1f);
}

TEST(ExactMath, DoubleFunctionsAreGoodToFifteenDigits) {
  ReplayableRng rng;
  for (int i = 0; i < 100000; ++i) {
    const double unit = static_cast<double>(rng.between(0, std::int64_t{1} << 52)) * 0x1p-52;
    const double angle = unit * std::exp2(static_cast<double>(rng.between(-20, 30)));
    ASSERT_NEAR(exact_sin(angle), std::sin(angle), 3e-16) << angle;
    ASSERT_NEAR(exact_cos(angle), std::cos(angle), 3e-16) << angle;
    const double power = (unit - 0.5) * 1000, value = std::exp(power);
    ASSERT_NEAR(exact_exp(power) / value, 1, 1e-15) << power;
    ASSERT_NEAR(exact_log(value), std::log(value), 1e-15 * (1 + std::fabs(power))) << value;
  }
  EXPECT_EQ(exact_exp(0.0), 1);
  EXPECT_EQ(exact_log(1.0), 0);
  EXPECT_EQ(exact_sin(0.0), 0);
  EXPECT_EQ(exact_cos(0.0), 1);
}

TEST(DecoderRows, TheReferenceIsTheFormula) {
  ReplayableRng rng;
  const DecoderRowsKernel& kernel = decoder_rows_table().back();
  const std::int64_t size = 150;
  const std::vector<float> x = random_floats(2 * size, 3, rng), w = random_floats(size, 1, rng);
  std::vector<float> y(x.size());
  kernel.rms_norm({2, 1, size, size}, x.data(), w.data(), 1e-5f, y.data(), serial());
  for (std::int64_t row = 0; row < 2; ++row) {
    double squares = 0;
    for (std::int64_t i = 0; i < size; ++i)
      squares += std::pow(static_cast<double>(x[static_cast<std::size_t>(row * size + i)]), 2);
    for (std::int64_t i = 0; i < size; ++i) {
      const auto at = static_cast<std::size_t>(row * size + i);
      const double wanted = static_cast<double>(x[at]) / std::sqrt(squares / static_cast<double>(size) + 1e-5) *
                            static_cast<double>(w[static_cast<std::size_t>(i)]);
      ASSERT_NEAR(static_cast<double>(y[at]), wanted, 1e-6 * (1 + std::fabs(wanted)));
    }
  }
  kernel.silu_gate(size, x.data(), w.data(), y.data(), serial());
  for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i) {
    const double g = static_cast<double>(x[i]), wanted = g / (1 + std::exp(-g)) * static_cast<double>(w[i]);
    ASSERT_NEAR(static_cast<double>(y[i]), wanted, 1e-6 * (1 + std::fabs(wanted)));
  }
  kernel.gelu_gate(size, x.data(), w.data(), y.data(), serial());
  for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i) {
    const double g = static_cast<double>(x[i]), z = std::sqrt(2 / 3.141592653589793) * (g + 0.044715 * g * g * g);
    const double wanted = 0.5 * g * (1 + std::tanh(z)) * static_cast<double>(w[i]);
    ASSERT_NEAR(static_cast<double>(y[i]), wanted, 1e-6 * (1 + std::fabs(wanted)));
  }
  kernel.relu2_gate(size, x.data(), w.data(), y.data(), serial());
  for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i) {
    const double g = std::fmax(static_cast<double>(x[i]), 0), wanted = g * g * static_cast<double>(w[i]);
    ASSERT_NEAR(static_cast<double>(y[i]), wanted, 1e-6 * (1 + std::fabs(wanted)));
  }
  y = x;
  kernel.soft_cap(2 * size, 1.5f, y.data(), serial());
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(static_cast<double>(y[i]), 1.5 * std::tanh(static_cast<double>(x[i]) / 1.5), 1e-6) << x[i];
  for (const bool neighbours : {false, true}) {
    std::vector<float> v = {1, 2, 3, 4, 5};  // the fifth element is not rotated
    const float cosine[] = {0, 0.5f}, sine[] = {1, 0.5f};
    kernel.rotate({1, 1, 5, 5}, 2, neighbours, cosine, sine, v.data(), serial());
    EXPECT_EQ(v, neighbours ? (std::vector<float>{-2, 1, -0.5f, 3.5f, 5}) : (std::vector<float>{-3, -1, 1, 3, 5}));
  }
}

TEST(DecoderRows, EveryKernelHasTheBitsOfTheReference) {
  ReplayableRng rng;
  for (const std::int64_t size : {1, 2, 7, 63, 64, 65, 96, 128, 200, 577}) {
    const RowVectors v{rng.between(1, 4), rng.between(1, 3), size, 0};
    RowVectors spread = v;
    spread.stride = v.per_row * size + rng.between(0, 5);
    const std::int64_t count = spread.rows * spread.stride;
    std::vector<float> x = random_floats(count, 4, rng), w = random_floats(size, 1, rng);
    const std::vector<float> u = random_floats(count, 2, rng);
    if (rng.coin()) x[static_cast<std::size_t>(rng.between(0, count - 1))] = rng.one_of({nan_float, -INFINITY, 90.0f});
    const std::int64_t pairs = size / 2;
    const std::vector<float> c = random_floats(v.rows * pairs, 1, rng), s = random_floats(v.rows * pairs, 1, rng);
    const auto all_of = [&](const DecoderRowsKernel& kernel, const Parallel& parallel) {
      std::vector<float> normed(x.size(), 7.0f), gated(x.size()), other(x.size()), squared(x.size()),
          rotated = x, turned = x, added = x, capped = x;
      kernel.rms_norm(spread, x.data(), w.data(), 1e-6f, normed.data(), parallel);
      kernel.silu_gate(count, x.data(), u.data(), gated.data(), parallel);
      kernel.gelu_gate(count, x.data(), u.data(), other.data(), parallel);
      kernel.relu2_gate(count, x.data(), u.data(), squared.data(), parallel);
      kernel.rotate(spread, pairs, false, c.data(), s.data(), rotated.data(), parallel);
      kernel.rotate(spread, pairs, true, c.data(), s.data(), turned.data(), parallel);
      kernel.add(count, u.data(), added.data(), parallel);
      kernel.soft_cap(count, 2.5f, capped.data(), parallel);
      for (const auto* part : {&gated, &other, &squared, &rotated, &turned, &added, &capped})
        normed.insert(normed.end(), part->begin(), part->end());
      return normed;
    };
    const std::vector<float> wanted = all_of(decoder_rows_table().back(), serial());
    for_every_pool([&](const Parallel& parallel) {
      for_every_kernel(decoder_rows_table(),
                       [&](const DecoderRowsKernel& kernel) { expect_same(all_of(kernel, parallel), wanted); });
    });
    if (HasFailure()) return;
  }
}

/// A kind of cache: its table, the bytes of a block and how it is filled.
struct CacheKind {
  Table<AttentionKernel> table;
  std::int64_t (*block_bytes)(const AttentionShape&);
  void (*store)(const AttentionShape&, std::int64_t, const float*, const float*, void*);
};
const CacheKind floats = {attention_table(), attention_block_bytes, store_position};
const CacheKind halves = {attention_f16_table(), attention_f16_block_bytes, store_f16_position};
const CacheKind codes = {attention_q8_table(), attention_q8_block_bytes, store_q8_position};
const CacheKind half_keys = {attention_q8_f16_keys_table(), attention_q8_f16_keys_block_bytes,
                             store_q8_f16_keys_position};

/// A cache and rows that ask it. Positions that nobody wrote hold NaN.
struct Cache {
  const CacheKind& kind;
  AttentionShape shape;
  std::int64_t positions;
  std::vector<float> queries, keys, values;  // queries [rows][heads][size], the others [positions][kv_heads][size]
  std::vector<PackedMemory> blocks;
  std::vector<const void*> table;
  std::vector<AttentionRow> rows;

  Cache(const CacheKind& of, AttentionShape s, std::int64_t position_count, std::int64_t row_count, ReplayableRng& rng)
      : kind(of), shape(s), positions(position_count) {
    const std::int64_t kv = s.kv_heads * s.head_size, q = s.heads * s.head_size;
    queries = random_floats(row_count * q, 2, rng);
    keys = random_floats(positions * kv, 2, rng);
    values = random_floats(positions * kv, 2, rng);
    for (std::int64_t r = 0; r < row_count; ++r) {
      const std::int64_t last = rng.between(0, positions - 1), first = rng.coin() ? 0 : rng.between(0, last);
      rows.push_back({queries.data() + r * q, nullptr, first, last, nullptr});
    }
    fill();
  }
  void fill() {
    const std::int64_t kv = shape.kv_heads * shape.head_size;
    blocks.clear();
    table.clear();
    for (std::int64_t b = 0; 64 * b < positions; ++b) {
      const auto bytes = static_cast<std::size_t>(kind.block_bytes(shape));
      blocks.emplace_back(bytes);
      std::memset(blocks.back().get(), 0xff, bytes);  // as floats: NaN
      table.push_back(blocks.back().get());
    }
    for (std::int64_t p = 0; p < positions; ++p)
      kind.store(shape, p, keys.data() + p * kv, values.data() + p * kv,
                 blocks[static_cast<std::size_t>(p / 64)].get());
    for (AttentionRow& row : rows) row.blocks = table.data();
  }
  std::vector<float> results(const AttentionKernel& kernel, const Parallel& parallel) {
    std::vector<float> all(queries.size(), 7.0f);
    for (std::size_t r = 0; r < rows.size(); ++r)
      rows[r].result = all.data() + static_cast<std::int64_t>(r) * shape.heads * shape.head_size;
    EXPECT_EQ(kernel.run(shape, rows.data(), static_cast<std::int64_t>(rows.size()), parallel), Status::ok);
    return all;
  }
};

struct Errors {
  double mean = 0, most = 0;
};

/// How far the reference is from the softmax in double.
Errors softmax_errors(Cache& cache) {
  Errors errors;
  const AttentionShape& s = cache.shape;
  const std::vector<float> found = cache.results(cache.kind.table.back(), serial());
  for (std::size_t r = 0; r < cache.rows.size(); ++r)
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const AttentionRow& row = cache.rows[r];
      const std::int64_t kv = h * s.kv_heads / s.heads;
      std::vector<double> weights;
      double sum = 0;
      for (std::int64_t p = row.first; p <= row.last; ++p) {
        double score = 0;
        for (std::int64_t i = 0; i < s.head_size; ++i)
          score += static_cast<double>(row.query[h * s.head_size + i]) *
                   static_cast<double>(cache.keys[static_cast<std::size_t>((p * s.kv_heads + kv) * s.head_size + i)]);
        score *= static_cast<double>(s.scale);
        if (s.cap > 0) score = static_cast<double>(s.cap) * std::tanh(score / static_cast<double>(s.cap));
        weights.push_back(std::exp(score));
        sum += weights.back();
      }
      for (std::int64_t c = 0; c < s.head_size; ++c) {
        double wanted = 0;
        for (std::int64_t p = row.first; p <= row.last; ++p)
          wanted +=
              weights[static_cast<std::size_t>(p - row.first)] / sum *
              static_cast<double>(cache.values[static_cast<std::size_t>((p * s.kv_heads + kv) * s.head_size + c)]);
        const auto at = static_cast<std::size_t>((static_cast<std::int64_t>(r) * s.heads + h) * s.head_size + c);
        const double error = std::fabs(static_cast<double>(found[at]) - wanted);
        errors.mean += error / static_cast<double>(found.size());
        errors.most = std::fmax(errors.most, std::isnan(error) ? INFINITY : error);
      }
    }
  return errors;
}

void expect_every_kernel_alike(Cache& cache) {
  const std::vector<float> wanted = cache.results(cache.kind.table.back(), serial());
  for_every_pool([&](const Parallel& parallel) {
    for_every_kernel(cache.kind.table,
                     [&](const AttentionKernel& kernel) { expect_same(cache.results(kernel, parallel), wanted); });
  });
}

constexpr std::pair<std::int64_t, std::int64_t> head_counts[] = {{1, 1}, {6, 2}, {9, 3}, {4, 4}};

TEST(Attention, EveryShapeIsTheSoftmaxAndEveryKernelTheReference) {
  ReplayableRng rng;
  for (const std::int64_t size : {1, 8, 33, 64, 80, 128, 256})
    for (const auto& [heads, kv_heads] : head_counts) {
      const float scale = 1 / std::sqrt(static_cast<float>(size));
      Cache cache(floats, {heads, kv_heads, size, scale, rng.one_of({0.0f, 0.7f, 50.0f})},
                  rng.one_of({1, 63, 64, 65, 130, 200}), 5, rng);
      ASSERT_LT(softmax_errors(cache).most, 2e-5);
      expect_every_kernel_alike(cache);
      if (HasFailure()) return;
    }
}

TEST(AttentionF16, IsThatOfFloatsRoundedOnce) {
  ReplayableRng rng;
  for (const std::int64_t size : {1, 8, 33, 64, 256})
    for (const auto& [heads, kv_heads] : head_counts) {
      Cache cache(halves, {heads, kv_heads, size, 0.125f, rng.one_of({0.0f, 1.5f})},
                  rng.one_of({1, 63, 64, 65, 130, 200}), 5, rng);
      cache.values.front() = 0x1.8p-24f;  // half way between two subnormal halves
      cache.fill();
      Cache rounded(floats, cache.shape, cache.positions, 0, rng);
      rounded.queries = cache.queries;
      rounded.rows = cache.rows;
      rounded.keys = cache.keys;
      rounded.values = cache.values;
      for (float& key : rounded.keys) key = float_from_f16(f16_from_float(key));
      for (float& value : rounded.values) value = float_from_f16(f16_from_float(value));
      rounded.fill();
      const std::vector<float> wanted = rounded.results(floats.table.back(), serial());
      expect_same(cache.results(halves.table.back(), serial()), wanted);
      expect_every_kernel_alike(cache);
      if (HasFailure()) return;
    }
}

TEST(AttentionQ8, EveryShapeIsNearTheSoftmaxAndEveryKernelTheReference) {
  ReplayableRng rng;
  for (const std::int64_t size : {16, 32, 48, 64, 80, 112, 128, 256})
    for (const auto& [heads, kv_heads] : head_counts)
      for (const CacheKind* kind : {&codes, &half_keys}) {
        const float scale = 1 / std::sqrt(static_cast<float>(size));
        Cache cache(*kind, {heads, kv_heads, size, scale, rng.one_of({0.0f, 0.7f, 50.0f})},
                    rng.one_of({1, 63, 64, 65, 130, 200}), 5, rng);
        const Errors errors = softmax_errors(cache);
        ASSERT_LT(errors.mean, 0.02);  // values reach from -4 to 4
        ASSERT_LT(errors.most, 0.3);
        expect_every_kernel_alike(cache);
        if (HasFailure()) return;
      }
}

TEST(Attention, SegmentsAreJoinedAsTheReferenceJoinsThem) {
  ReplayableRng rng;
  for (const CacheKind* kind : {&floats, &codes, &half_keys}) {
    Cache cache(*kind, {2, 1, 16, 0.25f}, 2200, 3, rng);
    const std::pair<std::int64_t, std::int64_t> seen[] = {{0, 2199}, {1000, 1024}, {1023, 2047}};
    for (std::size_t r = 0; r < 3; ++r) std::tie(cache.rows[r].first, cache.rows[r].last) = seen[r];
    ASSERT_LT(softmax_errors(cache).mean, kind == &floats ? 1e-6 : 0.02);
    expect_every_kernel_alike(cache);
  }
}

TEST(Attention, ACapBoundsWhatAScoreWeighs) {
  // One key is far nearer to the query than the others: with a cap of 1 it weighs at most e^2 times as much.
  ReplayableRng rng;
  for (const CacheKind* kind : {&floats, &halves, &codes, &half_keys}) {
    Cache cache(*kind, {1, 1, 16, 1, 1}, 2, 1, rng);
    cache.rows[0].first = 0;
    cache.rows[0].last = 1;
    for (std::size_t i = 0; i < 16; ++i) {
      cache.queries[i] = 4;
      cache.keys[i] = 4;
      cache.keys[16 + i] = -4;
      cache.values[i] = 1;
      cache.values[16 + i] = 0;
    }
    cache.fill();
    const double share = 1 / (1 + std::exp(-2.0));
    for_every_kernel(kind->table, [&](const AttentionKernel& kernel) {
      cache.shape.cap = 1;
      for (const float y : cache.results(kernel, serial())) ASSERT_NEAR(static_cast<double>(y), share, 0.01);
      cache.shape.cap = 0;
      for (const float y : cache.results(kernel, serial())) ASSERT_EQ(y, 1.0f);
    });
  }
}

TEST(AttentionQ8, OnePositionIsItsValueToHalfAStep) {
  ReplayableRng rng;
  Cache cache(codes, {2, 1, 64, 0.125f}, 1, 1, rng);
  float step = 0;
  for (const float v : cache.values) step = std::fmax(step, std::fabs(v) / 127);
  for_every_kernel(codes.table, [&](const AttentionKernel& kernel) {
    const std::vector<float> found = cache.results(kernel, serial());
    for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], cache.values[i % 64], step * 0.501f) << i;
  });
}

TEST(AttentionQ8, ALargeChannelDrownsNoOther) {
  // Two channels of the keys are 100 times as large and those of the queries as much smaller: the same scores.
  ReplayableRng rng;
  Cache cache(codes, {1, 1, 64, 0.125f}, 100, 8, rng);
  for (const std::size_t channel : {5u, 40u}) {
    for (std::size_t p = 0; p < 100; ++p) cache.keys[p * 64 + channel] *= 100;
    for (std::size_t r = 0; r < 8; ++r) cache.queries[r * 64 + channel] *= 0.01f;
  }
  cache.fill();
  const Errors errors = softmax_errors(cache);
  ASSERT_LT(errors.mean, 0.08);
  expect_every_kernel_alike(cache);
}

TEST(AttentionQ8, KeysOfFloat16KeepWhatALargeBiasDrowns) {
  // Channel 5 of all keys is 3,000 more: the same softmax, whose other channels codes lose.
  ReplayableRng rng;
  double errors[2];
  for (const CacheKind* kind : {&codes, &half_keys}) {
    Cache cache(*kind, {1, 1, 64, 0.125f}, 100, 8, rng);
    for (std::size_t p = 0; p < 100; ++p) cache.keys[p * 64 + 5] = 3000;
    for (std::size_t r = 0; r < 8; ++r) cache.queries[r * 64 + 5] = 0.5f;
    cache.fill();
    errors[kind == &codes ? 0 : 1] = softmax_errors(cache).mean;
    expect_every_kernel_alike(cache);
  }
  EXPECT_GT(errors[0], 0.2);
  EXPECT_LT(errors[1], 0.02);
}

TEST(AttentionQ8, ZerosAndTinyNumbersHaveNoStep) {
  ReplayableRng rng;
  for (const float size : {0.0f, 0x1p-110f}) {
    Cache cache(codes, {2, 2, 32, 1}, 70, 4, rng);
    for (float& key : cache.keys) key *= size;
    for (float& value : cache.values) value *= size;
    cache.fill();
    for_every_kernel(codes.table, [&](const AttentionKernel& kernel) {
      for (const float y : cache.results(kernel, serial())) ASSERT_EQ(y, 0.0f);
    });
  }
}

TEST(Attention, NanAndInfinityReachTheHeadsThatSeeThem) {
  ReplayableRng rng;
  for (const CacheKind* kind : {&floats, &halves, &codes, &half_keys})
    for (const float odd : {nan_float, INFINITY}) {
      Cache cache(*kind, {4, 2, 16, 0.25f}, 100, 6, rng);
      const std::vector<float> plain = cache.results(kind->table.back(), serial());
      cache.values[static_cast<std::size_t>((70 * 2 + 1) * 16 + 3)] = odd;  // position 70, KV head 1
      cache.fill();
      for_every_kernel(kind->table, [&](const AttentionKernel& kernel) {
        const std::vector<float> found = cache.results(kernel, serial());
        for (std::size_t i = 0; i < found.size(); ++i) {
          const AttentionRow& row = cache.rows[i / 64];
          const bool sees = row.first <= 70 && row.last >= 70 && i / 16 % 4 >= 2;
          if (sees && (kind == &codes || kind == &half_keys || i % 16 == 3))
            ASSERT_FALSE(std::isfinite(found[i]));
          else
            ASSERT_EQ(found[i], plain[i]) << i;
        }
      });
    }
}

TEST(Attention, ShapesThatAreNone) {
  for (const CacheKind* kind : {&floats, &halves, &codes, &half_keys})
    for_every_kernel(kind->table, [](const AttentionKernel& kernel) {
      EXPECT_EQ(kernel.run({4, 3, 16, 1}, nullptr, 0, serial()), Status::bad_shape);
      EXPECT_EQ(kernel.run({4, 0, 16, 1}, nullptr, 0, serial()), Status::bad_shape);
      EXPECT_EQ(kernel.run({4, 4, 0, 1}, nullptr, 0, serial()), Status::bad_shape);
      EXPECT_EQ(kernel.run({4, 2, 16, 1, -1.0f}, nullptr, 0, serial()), Status::bad_shape);
      EXPECT_EQ(kernel.run({4, 2, 16, 1, nan_float}, nullptr, 0, serial()), Status::bad_shape);
      EXPECT_EQ(kernel.run({4, 2, 16, 1, 30}, nullptr, 0, serial()), Status::ok);
      EXPECT_EQ(kernel.run({4, 2, 16, 1}, nullptr, 0, serial()), Status::ok);
    });
  EXPECT_FALSE(takes_q8({4, 2, 24, 1}));
  EXPECT_TRUE(takes_q8({4, 2, 48, 1}));
}

}  // namespace
}  // namespace bie::kernels::test
