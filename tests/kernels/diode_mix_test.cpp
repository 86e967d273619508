// DiodeMix on one parameter: every kernel gives the reference's bits, and the reference the formulas in float64.
#include "bie/kernels/diode_mix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "elements.h"
#include "every_kernel.h"
#include "kernels/arithmetic/random.h"

namespace bie::kernels::test {
namespace {

constexpr std::uint64_t random_start = 0x1234567890abcdefu;
constexpr AdamNumbers adam{0.9f, 0.99f, 0.1f, 0.01f, 1e-6f, 0.003f};
constexpr SignNumbers votes{0.1f, 0.02f, 0.05f};
constexpr float rate = 0.02f;

/// A parameter with its moments, as one step leaves it.
struct State {
  Elements param, grad, l, s;
  int bits = 8;

  State(Dtype param_type, Dtype grad_type, Dtype moments, std::int64_t count, ReplayableRng& rng)
      : param(random_elements(param_type, count, 1, rng)),
        grad(random_elements(grad_type, count, 1, rng)),
        l(random_elements(moments, count, 0.5f, rng)),
        s(random_elements(moments, count, 0.5f, rng)) {}

  void make_squares() {
    for (std::int64_t i = 0; i < s.size(); ++i) s.set(i, std::fabs(s.get(i)));
  }
  DiodeMixTensor tensor() {
    return {param.bytes.data(), grad.bytes.data(), l.bytes.data(), s.bytes.data(),
            param.size(),       random_start,      rate,           bits};
  }
  /// Whether both hold the same bits.
  void expect(const State& other) const {
    ASSERT_EQ(param.bytes, other.param.bytes);
    ASSERT_EQ(l.bytes, other.l.bytes);
    ASSERT_EQ(s.bytes, other.s.bytes);
  }
};

/// The state after a step of the reference, which every kernel reaches on every pool. step(kernel, tensor, parallel)
template <class Step>
State after(const State& before, const Step& step) {
  State reference = before;
  EXPECT_EQ(step(diode_mix_table().back(), reference.tensor(), serial()), Status::ok);
  for_every_pool([&](const Parallel& parallel) {
    for_every_kernel(diode_mix_table(), [&](const DiodeMixKernel& kernel) {
      State state = before;
      ASSERT_EQ(step(kernel, state.tensor(), parallel), Status::ok);
      state.expect(reference);
    });
  });
  return reference;
}

double distance(Dtype dtype) { return dtype == Dtype::f32 ? 3e-6 : dtype == Dtype::f16 ? 2e-3 : 0.016; }

/// A stored moment is the wanted one, or in bfloat16 one of its neighbours.
void expect_moment(float found, double wanted, Dtype dtype) {
  EXPECT_NEAR(static_cast<double>(found), wanted, std::fabs(wanted) * distance(dtype) + 1e-7);
}

struct Moved {
  double w, l, s;
};

Moved by_formula(double w, double l, double s, double g) {
  const double a = 0.9 * l + 0.1 * g, b = 0.99 * s + 0.01 * g * g;
  const double p = w - rate * a / (std::sqrt(b) + 1e-6);
  return {p - static_cast<double>(adam.decay) * p, a, b};
}

TEST(DiodeMix, Floats) {
  ReplayableRng rng;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16})
    for (const Dtype moments : {Dtype::f32, Dtype::bf16})
      for (const std::int64_t count : element_counts) {
        State before(dtype, dtype, moments, count, rng);
        before.make_squares();
        const State state = after(before, [&](const DiodeMixKernel& kernel, const DiodeMixTensor& t,
                                              const Parallel& p) { return kernel.floats(t, dtype, moments, adam, p); });
        for (std::int64_t i = 0; i < count; ++i) {
          const Moved moved = by_formula(before.param.get(i), before.l.get(i), before.s.get(i), before.grad.get(i));
          EXPECT_NEAR(static_cast<double>(state.param.get(i)), moved.w, std::fabs(moved.w) * distance(dtype) + 3e-6);
          expect_moment(state.l.get(i), moved.l, moments);
          expect_moment(state.s.get(i), moved.s, moments);
        }
        if (HasFailure()) return;
      }
}

TEST(DiodeMix, Codes) {
  ReplayableRng rng;
  for (const int bits : {8, 4})
    for (const Dtype grad : {Dtype::f32, Dtype::s8})
      for (const Dtype moments : {Dtype::f32, Dtype::bf16})
        for (const std::int64_t count : element_counts) {
          State before(Dtype::s8, grad, moments, count, rng);
          before.bits = bits;
          before.make_squares();
          const double hi = bits == 8 ? 127 : 7, lo = -hi - 1;
          if (bits == 4)
            for (std::int64_t i = 0; i < count; ++i) before.param.set(i, static_cast<float>(rng.between(-8, 7)));
          const float scale = 0.03f, next = 0.04f;
          const State state =
              after(before, [&](const DiodeMixKernel& kernel, const DiodeMixTensor& t, const Parallel& p) {
                return kernel.codes(t, scale, next, grad, moments, adam, p);
              });
          for (std::int64_t i = 0; i < count; ++i) {
            const double w = before.param.get(i) * static_cast<double>(scale);
            const Moved moved = by_formula(w, before.l.get(i), before.s.get(i), before.grad.get(i));
            const double v = std::min(hi, std::max(lo, moved.w / static_cast<double>(next)));
            const double up = v - std::floor(v);  // the probability of the code above
            const double u = static_cast<double>(uniform(random_bits(random_start, i)));
            const double code = static_cast<double>(state.param.codes()[i]);
            if (std::fabs(u - (1 - up)) > 1e-4 && up > 1e-4 && up < 1 - 1e-4)
              EXPECT_EQ(code, std::floor(v) + (u >= 1 - up ? 1 : 0)) << v;
            else
              EXPECT_LT(std::fabs(code - v), 1.001);
            expect_moment(state.l.get(i), moved.l, moments);
            expect_moment(state.s.get(i), moved.s, moments);
          }
          if (HasFailure()) return;
        }
}

TEST(DiodeMix, Signs) {
  ReplayableRng rng;
  for (const Dtype grad : {Dtype::f32, Dtype::s8})
    for (const Dtype moments : {Dtype::f32, Dtype::bf16})
      for (const std::int64_t count : element_counts) {
        const State before(Dtype::s8, grad, moments, count, rng);
        const State state = after(before, [&](const DiodeMixKernel& kernel, const DiodeMixTensor& t,
                                              const Parallel& p) { return kernel.signs(t, grad, moments, votes, p); });
        for (std::int64_t i = 0; i < count; ++i) {
          const double l = before.l.get(i), a = l + 0.1 * (static_cast<double>(before.grad.get(i)) - l);
          const double vote = a > 0 ? 0.05 : a < 0 ? -0.05 : 0;
          const double s = before.s.get(i), b = s + 0.02 * (vote - s);
          const int magnitude = std::min(127, std::abs(static_cast<int>(before.param.codes()[i])));
          const int w = state.param.codes()[i];
          if (b > 1e-6)
            EXPECT_EQ(w, -std::abs(static_cast<int>(before.param.codes()[i]))) << b;
          else if (b < -1e-6)
            EXPECT_EQ(w, magnitude) << b;
          else
            EXPECT_EQ(std::min(127, std::abs(w)), magnitude);
          if (std::fabs(a) < 1e-6) continue;  // its sign, and with it the vote, is a matter of the last bit
          expect_moment(state.l.get(i), a, moments);
          expect_moment(state.s.get(i), b, moments);
        }
        if (HasFailure()) return;
      }
}

TEST(DiodeMix, ASecondMomentOfZeroIsPositive) {
  for_every_kernel(diode_mix_table(), [](const DiodeMixKernel& kernel) {
    std::int8_t w[] = {-5, 5, -128, 0}, g[] = {0, 0, 0, 0};
    float l[4] = {}, s[4] = {};
    const DiodeMixTensor t{w, g, l, s, 4, random_start, rate, 8};
    ASSERT_EQ(kernel.signs(t, Dtype::s8, Dtype::f32, votes, serial()), Status::ok);
    EXPECT_EQ(w[0], 5);
    EXPECT_EQ(w[1], 5);
    EXPECT_EQ(w[2], 127);
    EXPECT_EQ(w[3], 0);
  });
}

// Stochastic rounding is unbiased, and exact where bfloat16 holds the value.
TEST(DiodeMix, MomentsOfBfloat16AreRoundedAtRandom) {
  constexpr std::int64_t count = 40000;
  for_every_kernel(diode_mix_table(), [](const DiodeMixKernel& kernel) {
    std::vector<float> w(count), g(count);
    Elements l(Dtype::bf16, count), s(Dtype::bf16, count);
    for (std::int64_t i = 0; i < count; ++i) l.set(i, 1.0f);
    const AdamNumbers keep{1.001f, 1, 0, 0, 1, 0};  // l becomes 1.001, between 1 and 1.0078125
    const DiodeMixTensor t{w.data(), g.data(), l.bytes.data(), s.bytes.data(), count, random_start, 0, 8};
    ASSERT_EQ(kernel.floats(t, Dtype::f32, Dtype::bf16, keep, serial()), Status::ok);
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      EXPECT_TRUE(l.get(i) == 1.0f || l.get(i) == 1.0078125f) << l.get(i);
      EXPECT_EQ(s.get(i), 0.0f);
      sum += static_cast<double>(l.get(i));
    }
    EXPECT_NEAR(sum / count, 1.001, 5 * 0.0026 / std::sqrt(count));
  });
}

TEST(DiodeMix, MomentsThatAreNotFiniteStaySo) {
  const float odd[] = {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN()};
  for_every_kernel(diode_mix_table(), [&](const DiodeMixKernel& kernel) {
    float w[3] = {};
    Elements l(Dtype::bf16, 3), s(Dtype::bf16, 3);
    const DiodeMixTensor t{w, odd, l.bytes.data(), s.bytes.data(), 3, random_start, rate, 8};
    ASSERT_EQ(kernel.floats(t, Dtype::f32, Dtype::bf16, adam, serial()), Status::ok);
    EXPECT_EQ(l.get(0), odd[0]);
    EXPECT_EQ(l.get(1), odd[1]);
    EXPECT_TRUE(std::isnan(l.get(2)));
    EXPECT_EQ(s.get(1), odd[0]);
  });
}

TEST(DiodeMix, RenewedScale) {
  ReplayableRng rng;
  for (const std::int64_t count : element_counts) {
    const Elements codes = random_elements(Dtype::s8, count, 1, rng);
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += std::fabs(static_cast<double>(codes.codes()[i]));
    const double wanted = 0.2 * sum / static_cast<double>(count) * 0.5;
    for_every_pool([&](const Parallel& parallel) {
      for_every_kernel(diode_mix_table(), [&](const DiodeMixKernel& kernel) {
        float next = 0;
        ASSERT_EQ(kernel.renewed_scale(codes.codes(), count, 0.5f, 0.2, &next, parallel), Status::ok);
        ASSERT_EQ(next, sum > 0 ? f32(wanted) : 0.5f) << count;
      });
    });
  }
}

TEST(DiodeMix, FirstMoment) {
  ReplayableRng rng;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const std::int64_t count : element_counts) {
      const Elements signs = random_elements(Dtype::s8, count, 1, rng);
      Elements expected(dtype, count);
      for (std::int64_t i = 0; i < count; ++i) {
        const double u = static_cast<double>(uniform(random_bits(random_start, i)));
        const int w = signs.codes()[i];
        expected.set(i, f32((w < 0 ? 1 : w > 0 ? -1 : 0) * static_cast<double>(1e-3f) * u));
      }
      for_every_pool([&](const Parallel& parallel) {
        for_every_kernel(diode_mix_table(), [&](const DiodeMixKernel& kernel) {
          GuardedBytes out(expected.bytes.size());
          ASSERT_EQ(kernel.first_moment(signs.codes(), count, random_start, out.data(), dtype, parallel), Status::ok);
          ASSERT_TRUE(same_bytes(expected.bytes, out)) << count;
        });
      });
      if (HasFailure()) return;
    }
}

TEST(DiodeMix, WrongArguments) {
  ReplayableRng rng;
  const State blank(Dtype::f32, Dtype::f32, Dtype::f32, 2, rng);
  for_every_kernel(diode_mix_table(), [&](const DiodeMixKernel& kernel) {
    State state = blank;
    DiodeMixTensor t = state.tensor();
    for (const Dtype dtype : {Dtype::s8, Dtype::s4, Dtype::bits, Dtype::s32}) {
      EXPECT_EQ(kernel.floats(t, dtype, Dtype::f32, adam, serial()), Status::bad_dtype);
      EXPECT_EQ(kernel.floats(t, Dtype::f32, dtype, adam, serial()), Status::bad_dtype);
      EXPECT_EQ(kernel.codes(t, 1, 1, Dtype::s8, dtype, adam, serial()), Status::bad_dtype);
      EXPECT_EQ(kernel.signs(t, Dtype::s8, dtype, votes, serial()), Status::bad_dtype);
    }
    for (const Dtype dtype : {Dtype::bf16, Dtype::f16, Dtype::s32}) {
      EXPECT_EQ(kernel.codes(t, 1, 1, dtype, Dtype::f32, adam, serial()), Status::bad_dtype);
      EXPECT_EQ(kernel.signs(t, dtype, Dtype::f32, votes, serial()), Status::bad_dtype);
    }
    EXPECT_EQ(kernel.first_moment(nullptr, 1, 1, t.l, Dtype::f16, serial()), Status::bad_dtype);
    t.count = -1;
    EXPECT_EQ(kernel.floats(t, Dtype::f32, Dtype::f32, adam, serial()), Status::bad_shape);
    EXPECT_EQ(kernel.codes(t, 1, 1, Dtype::s8, Dtype::f32, adam, serial()), Status::bad_shape);
    EXPECT_EQ(kernel.signs(t, Dtype::s8, Dtype::f32, votes, serial()), Status::bad_shape);
    float next = 1;
    EXPECT_EQ(kernel.renewed_scale(nullptr, -1, 1, 1, &next, serial()), Status::bad_shape);
    EXPECT_EQ(kernel.first_moment(nullptr, -1, 1, t.l, Dtype::f32, serial()), Status::bad_shape);
    state.expect(blank);
  });
}

}  // namespace
}  // namespace bie::kernels::test
