// Refusals of the GEMM kernels: all kernels refuse the same calls, and a refusal leaves the output unchanged.
#include <functional>
#include <limits>
#include <string>

#include "every_kernel.h"
#include "formulas.h"
#include "gemm_sweep.h"

namespace bie::kernels::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
const float nan = std::numeric_limits<float>::quiet_NaN(), signaling = std::numeric_limits<float>::signaling_NaN();

struct Call {
  GemmShape shape;
  GemmInput x;
  GemmOutput y;
};

struct Refusal {
  std::string what;
  Status status;
  std::function<void(Call&)> spoil;
};

std::vector<Refusal> refusals(const GemmWidth& width) {
  std::vector<Refusal> all = {
      {"m < 0", Status::bad_shape, [](Call& c) { c.shape.m = -1; }},
      {"n < 0", Status::bad_shape, [](Call& c) { c.shape.n = -1; }},
      {"k < 0", Status::bad_shape, [](Call& c) { c.shape.k = -7; }},
      {"k too long", Status::too_deep, [k = width.max_k + 1](Call& c) { c.shape.k = k; }},
      {"x is s32", Status::bad_dtype, [](Call& c) { c.x.dtype = Dtype::s32; }},
  };
  for (const Dtype code : {Dtype::bits, Dtype::s8, Dtype::s4}) {
    if (code != width.code)
      all.push_back({std::string("x is ") + name(code), Status::bad_dtype, [code](Call& c) { c.x.dtype = code; }});
  }
  all.push_back({"y is s4", Status::bad_dtype, [](Call& c) { c.y.dtype = Dtype::s4; }});
  for (const float step : {0.0f, -1.0f, infinity, nan})
    all.push_back({"y is s8 of step " + std::to_string(step), Status::bad_scale, [step](Call& c) {
                     c.y.dtype = Dtype::s8;
                     c.y.step = step;
                   }});
  const Status on_step = width.code == Dtype::bits ? Status::ok : Status::bad_scale;
  for (const float step : {0.0f, -0.0f, -1.0f, infinity, -infinity, nan})
    all.push_back({"step " + std::to_string(step), on_step, [step](Call& c) { c.x.step = step; }});
  return all;
}

}  // namespace

TEST_P(GemmRefusals, WrongArguments) {
  ReplayableRng rng;
  const GemmProblem p = random_gemm(GetParam(), {{4, 6, 10}, Dtype::f32, Dtype::f32}, rng);
  for_every_kernel(GetParam().table(), [&](const GemmKernel& kernel) {
    const PackedMemory packed(kernel.packed_bytes(6, 10));
    kernel.prepack(p.weight.data(), 6, 10, packed.get(), serial());
    for (const Refusal& refusal : refusals(GetParam())) {
      GuardedBytes y(p.y_bytes());
      Call call = {p.c.shape, p.input(), {y.data(), p.c.out, p.y_stride(), p.scale}};
      refusal.spoil(call);
      EXPECT_EQ(kernel.run(call.shape, call.x, packed.get(), call.y, serial()), refusal.status) << refusal.what;
      EXPECT_EQ(y.untouched(), refusal.status != Status::ok) << refusal.what;
    }
  });
}

TEST_P(GemmRefusals, EveryKernelNamesTheSameOfTwoFaults) {
  ReplayableRng rng;
  const GemmProblem p = random_gemm(GetParam(), {{4, 6, 10}, Dtype::f32, Dtype::f32}, rng);
  const std::vector<Refusal> all = refusals(GetParam());
  GuardedBytes y(p.y_bytes());
  for (const Refusal& first : all)
    for (const Refusal& second : all) {
      Call call = {p.c.shape, p.input(), {y.data(), p.c.out, p.y_stride(), p.scale}};
      first.spoil(call);
      second.spoil(call);
      const GemmKernel& reference = GetParam().table().back();
      if (first.status == Status::ok && second.status == Status::ok) continue;
      const Status expected = reference.run(call.shape, call.x, nullptr, call.y, serial());
      EXPECT_NE(expected, Status::ok) << first.what << " and " << second.what;
      for_every_kernel(GetParam().table(), [&](const GemmKernel& kernel) {
        EXPECT_EQ(kernel.run(call.shape, call.x, nullptr, call.y, serial()), expected)
            << first.what << " and " << second.what;
      });
    }
}

TEST_P(GemmRefusals, CodesOfWhatIsNotFinite) {
  ReplayableRng rng;
  for (const Dtype code : {Dtype::bits, Dtype::s8}) {
    GemmProblem p = random_gemm(GetParam(), {{7, 70, 40}, Dtype::f32, code, /*with_bias=*/true}, rng);
    p.out_bias[69] = infinity;
    for_every_kernel(GetParam().table(), [&](const GemmKernel& kernel) {
      const PackedMemory packed(kernel.packed_bytes(70, 40));
      kernel.prepack(p.weight.data(), 70, 40, packed.get(), serial());
      GuardedBytes y(p.y_bytes());
      EXPECT_EQ(kernel.run(p.c.shape, p.input(), packed.get(), p.output(y.data()), serial()), Status::not_finite);
    });
    p.out_bias[69] = 3e38f;  // nearly infinite
    expect_every_kernel(p);
  }
}

// Positions: every element of a row (so the first, the last and both sides of every vector's edge) in the first, a
// middle and the last row.
TEST_P(GemmRefusals, NanAndInfinityAnywhereInTheActivation) {
  ReplayableRng rng;
  const std::int64_t m = 8, n = 5, k = 53;
  for (const Dtype in : {Dtype::f32, Dtype::bf16, Dtype::f16})
    for (const bool with_bias : {false, true}) {
      GemmProblem p = random_gemm(GetParam(), {{m, n, k}, in, Dtype::s32, with_bias, 1}, rng);
      for_every_kernel(GetParam().table(), [&](const GemmKernel& kernel) {
        const PackedMemory packed(kernel.packed_bytes(n, k));
        kernel.prepack(p.weight.data(), n, k, packed.get(), serial());
        GuardedBytes y(p.y_bytes());
        const auto run = [&] {
          return kernel.run(p.c.shape, p.input(), packed.get(), {y.data(), p.c.out, p.y_stride(), p.scale}, serial());
        };
        ASSERT_EQ(run(), Status::ok);
        for (const std::int64_t at : {std::int64_t{0}, m / 2, m - 1})
          for (std::int64_t i = 0; i < k; ++i)
            for (const float value : {nan, -nan, signaling, infinity, -infinity}) {
              unsigned char* data = p.x.data() + at * p.x_stride();
              const float kept = read_float(data, in, i);
              write_float(data, in, i, value);
              EXPECT_EQ(run(), Status::not_finite)
                  << value << " at row " << at << ", element " << i << " as " << name(in);
              write_float(data, in, i, kept);
            }
      });
      if (HasFailure()) return;
    }
}

TEST_P(GemmRefusals, NanAndInfinityAnywhereInTheBias) {
  ReplayableRng rng;
  const std::int64_t k = 53;
  for (const Dtype in : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    GemmProblem p = random_gemm(GetParam(), {{2, 3, k}, in, Dtype::s32, true}, rng);
    for_every_kernel(GetParam().table(), [&](const GemmKernel& kernel) {
      const PackedMemory packed(kernel.packed_bytes(3, k));
      kernel.prepack(p.weight.data(), 3, k, packed.get(), serial());
      GuardedBytes y(p.y_bytes());
      for (float& b : p.bias)
        for (const float value : {nan, infinity, -infinity}) {
          const float kept = b;
          b = value;
          EXPECT_EQ(kernel.run(p.c.shape, p.input(), packed.get(), {y.data(), p.c.out, p.y_stride(), 1}, serial()),
                    Status::not_finite)
              << value << " in the bias at " << &b - p.bias.data();
          b = kept;
        }
    });
  }
}

TEST_P(GemmRefusals, ASumThatOverflowsIsNotFinite) {
  GemmProblem p = blank_gemm(GetParam(), {{1, 1, 21}, Dtype::f32, Dtype::s32, true});
  const float huge = std::numeric_limits<float>::max();
  write_float(p.x.data(), Dtype::f32, 20, huge);
  p.bias[20] = huge;
  for_every_kernel(GetParam().table(), [&](const GemmKernel& kernel) {
    const PackedMemory packed(kernel.packed_bytes(1, 21));
    kernel.prepack(p.weight.data(), 1, 21, packed.get(), serial());
    GuardedBytes y(p.y_bytes());
    EXPECT_EQ(kernel.run(p.c.shape, p.input(), packed.get(), {y.data(), Dtype::s32, 4, 1}, serial()),
              Status::not_finite);
  });
}

TEST_P(GemmRefusals, NobodyLooksAtActivationsWithoutOutputs) {
  GemmProblem p = blank_gemm(GetParam(), {{3, 0, 9}, Dtype::f32, Dtype::s32});
  for (std::int64_t i = 0; i < 9; ++i) write_float(p.x.data(), Dtype::f32, i, nan);
  expect_every_kernel(p, {});
}

}  // namespace bie::kernels::test
