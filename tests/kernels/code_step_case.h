// Weights of codes with the state of their step, and what it means in float64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "bie/kernels/code_step.h"
#include "elements.h"

namespace bie::kernels::test {

/// A weight of codes with its state, whose step can be taken on copies.
struct CodeStepCase {
  std::int64_t k, n, group;
  int bits, top;
  Offset offset;
  bool small;  ///< moments of 8 bits
  Dtype scale_dtype, grad_dtype;
  std::vector<std::uint32_t> words;
  std::vector<std::int8_t> rest;  ///< empty: none
  Elements scales{Dtype::f32, 0}, float_zeros{Dtype::f32, 0}, grad{Dtype::f32, 0};
  std::vector<std::int32_t> whole_zeros;
  std::vector<std::int8_t> l8;
  std::vector<std::uint8_t> m8;
  std::vector<float> l, m, largest, scale_l, scale_m;  ///< scale_l empty: scales stay
  AdamNumbers adam{0.9f, 0.99f, 1 - 0.9f, 1 - 0.99f, 1e-6f, 0.01f};
  float rate = 0.01f, scale_rate = 0.02f;
  std::uint64_t random = 11;

  std::int64_t groups() const { return k == 0 ? 0 : (k - 1) / group + 1; }

  int code(std::int64_t i, std::int64_t j) const {
    const std::int64_t bit = i * bits, at = bit / 32 * n + j;
    std::uint64_t two = words[static_cast<std::size_t>(at)];
    if (bit % 32 + bits > 32) two |= std::uint64_t{words[static_cast<std::size_t>(at + n)]} << 32;
    return static_cast<int>(two >> (bit % 32) & ((1u << bits) - 1));
  }
  int place(std::int64_t i, std::int64_t j) const {
    return rest.empty() ? code(i, j) : 256 * code(i, j) + rest[static_cast<std::size_t>(i * n + j)];
  }
  double scale(std::int64_t i, std::int64_t j) const { return scales.get(i / group * n + j); }
  double zero(std::int64_t i, std::int64_t j) const {
    const std::int64_t at = i / group * n + j;
    if (offset == Offset::value) return static_cast<double>(float_zeros.get(at)) / scale(i, j);
    return offset == Offset::zero ? whole_zeros[static_cast<std::size_t>(at)] : 1 << (bits - 1);
  }
  double first(std::int64_t i, std::int64_t j) const {
    if (!small) return l[static_cast<std::size_t>(i * n + j)];
    const double code = l8[static_cast<std::size_t>(i * n + j)] / 127.0;
    return largest[static_cast<std::size_t>(i * moment_blocks(n) + j / moment_block)] * code *
           std::fabs(code * code * code);
  }
  double second(std::int64_t i, std::int64_t j) const {
    if (!small) return m[static_cast<std::size_t>(i * n + j)];
    const double code = m8[static_cast<std::size_t>(i * n + j)] / 255.0;
    return largest[static_cast<std::size_t>((k + i) * moment_blocks(n) + j / moment_block)] * std::pow(code, 4);
  }

  /// The step of this memory.
  CodeStep all() {
    void* const zeros = offset == Offset::value  ? static_cast<void*>(float_zeros.bytes.data())
                        : offset == Offset::zero ? static_cast<void*>(whole_zeros.data())
                                                 : nullptr;
    const auto floats = [](std::vector<float>& v) { return v.empty() ? nullptr : v.data(); };
    return {k,
            n,
            group,
            bits,
            top,
            words.data(),
            rest.empty() ? nullptr : rest.data(),
            scales.bytes.data(),
            scale_dtype,
            offset,
            zeros,
            grad.bytes.data(),
            grad_dtype,
            small ? static_cast<void*>(l8.data()) : l.data(),
            small ? static_cast<void*>(m8.data()) : m.data(),
            small ? largest.data() : nullptr,
            floats(scale_l),
            floats(scale_m),
            adam,
            rate,
            scale_rate,
            random};
  }
  Status step(const CodeStepKernel& kernel, const Parallel& parallel) { return kernel.step(all(), parallel); }
};

inline CodeStepCase some_step(int bits, Offset offset, bool has_rest, bool small, bool learns, ReplayableRng& rng) {
  CodeStepCase c;
  c.bits = bits;
  c.top = bits == 2 && rng.coin() ? 2 : (1 << bits) - 1;
  c.offset = offset;
  c.small = small;
  c.k = rng.one_of({1, 7, 40, 97});
  c.n = rng.one_of({1, 63, 255, 256, 257, 530});
  c.group = rng.one_of({1, 5, 32, 64, 1000});
  c.scale_dtype = rng.one_of({Dtype::f32, Dtype::bf16, Dtype::f16});
  c.grad_dtype = rng.one_of({Dtype::f32, Dtype::bf16, Dtype::f16});
  const std::int64_t count = c.k * c.n, numbers = c.groups() * c.n;
  c.words.assign(static_cast<std::size_t>(run_words(bits, c.k) * c.n), 0);
  for (std::int64_t i = 0; i < c.k; ++i)
    for (std::int64_t j = 0; j < c.n; ++j) {
      const std::uint64_t code = static_cast<std::uint64_t>(rng.between(0, c.top)) << (i * bits % 32);
      const auto at = static_cast<std::size_t>(i * bits / 32 * c.n + j);
      c.words[at] |= static_cast<std::uint32_t>(code);
      if (code >> 32 != 0) c.words[at + static_cast<std::size_t>(c.n)] |= static_cast<std::uint32_t>(code >> 32);
    }
  c.scales = random_elements(c.scale_dtype, numbers, 0.1f, rng);
  c.float_zeros = random_elements(c.scale_dtype, numbers, 0.1f, rng);
  for (std::int64_t i = 0; i < numbers; ++i) {
    c.scales.set(i, c.scales.get(i) < 0 ? c.scales.get(i) - 0.0625f : c.scales.get(i) + 0.0625f);
    c.whole_zeros.push_back(static_cast<std::int32_t>(rng.between(1, 1 << bits)));
  }
  c.grad = random_elements(c.grad_dtype, count, 1, rng);
  const auto blocks = static_cast<std::size_t>(2 * c.k * moment_blocks(c.n));
  for (std::size_t i = 0; i < blocks; ++i) c.largest.push_back(static_cast<float>(rng.between(1, 1000)) / 1000);
  for (std::int64_t i = 0; i < count; ++i) {
    if (has_rest) c.rest.push_back(static_cast<std::int8_t>(rng.between(-128, 127)));
    c.l8.push_back(static_cast<std::int8_t>(rng.between(-127, 127)));
    c.m8.push_back(static_cast<std::uint8_t>(rng.between(0, 255)));
    c.l.push_back(static_cast<float>(rng.between(-1000, 1000)) / 1000);
    c.m.push_back(static_cast<float>(rng.between(0, 1000)) / 1000);
  }
  for (std::int64_t i = 0; learns && i < numbers; ++i) {
    c.scale_l.push_back(static_cast<float>(rng.between(-1000, 1000)) / 1000);
    c.scale_m.push_back(static_cast<float>(rng.between(1, 1000)) / 1000);
  }
  return c;
}

template <class Body>
void for_cases(const Body& body) {
  ReplayableRng rng;
  for (const int bits : {1, 2, 3, 4, 5, 6, 8})
    for (const Offset offset : {Offset::none, Offset::value, Offset::zero})
      for (int form = 0; form < 8; ++form) {
        body(some_step(bits, offset, form % 2 != 0, form / 2 % 2 != 0, form / 4 != 0, rng));
        if (testing::Test::HasFailure()) return;
      }
}

/// Every tensor that a step writes has the same bits.
inline void expect_same(const CodeStepCase& found, const CodeStepCase& wanted) {
  SCOPED_TRACE(testing::Message() << wanted.bits << " bits, [" << wanted.k << ", " << wanted.n << "]");
  EXPECT_EQ(found.words, wanted.words);
  EXPECT_EQ(found.rest, wanted.rest);
  EXPECT_EQ(found.scales.bytes, wanted.scales.bytes);
  EXPECT_EQ(found.float_zeros.bytes, wanted.float_zeros.bytes);
  EXPECT_EQ(found.l, wanted.l);
  EXPECT_EQ(found.m, wanted.m);
  EXPECT_EQ(found.l8, wanted.l8);
  EXPECT_EQ(found.m8, wanted.m8);
  EXPECT_EQ(found.largest, wanted.largest);
  EXPECT_EQ(found.scale_l, wanted.scale_l);
  EXPECT_EQ(found.scale_m, wanted.scale_m);
}

}  // namespace bie::kernels::test
