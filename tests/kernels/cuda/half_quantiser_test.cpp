// Codes of 16-bit floats by one product: where they are said to be those of the division, they are, for every number;
// and that is said of most steps, but of none that is very large or very small.
#include "tests/kernels/cuda/half_quantiser.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/arithmetic/float_bits.h"
#include "tests/kernels/cuda/device_memory.h"
#include "tests/kernels/replayable_rng.h"

namespace bie::kernels::test {
namespace {

constexpr Dtype halves[] = {Dtype::f16, Dtype::bf16};
constexpr float bounds[] = {8, 128};

void expect_divisions_codes(const HalfCodes& found, Dtype dtype, float step, float bound) {
  for (std::size_t i = 0; i < found.codes.size(); ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float x = dtype == Dtype::f16 ? float_from_f16(bits) : float_from_bf16(bits);
    if (!std::isfinite(x)) continue;
    const float code = std::min(std::max(std::nearbyint(x / step), -bound), bound - 1);
    ASSERT_EQ(found.codes[i], static_cast<std::int8_t>(code)) << x << " / " << step << ", bound " << bound;
  }
}

TEST(HalfQuantiser, SettledCodesAreTheDivisions) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  for (const Dtype dtype : halves)
    for (const float bound : bounds) {
      constexpr int steps = 60;
      int settled = 0;
      for (int i = 0; i < steps; ++i) {
        const float step = std::ldexp(static_cast<float>(rng.between(1 << 23, (1 << 24) - 1)),
                                      static_cast<int>(rng.between(-30, -20)));
        const HalfCodes found = half_codes(dtype, step, -bound, bound - 1);
        settled += found.settled ? 1 : 0;
        if (found.settled) expect_divisions_codes(found, dtype, step, bound);
        if (HasFatalFailure()) return;
      }
      EXPECT_GE(settled, steps * 3 / 4) << "dtype " << static_cast<int>(dtype) << ", bound " << bound;
    }
}

TEST(HalfQuantiser, WildStepsAreNotSettled) {
  BIE_NEEDS_GPU();
  for (const Dtype dtype : halves)
    for (const float step : {0x1p-61f, 0x1p61f, INFINITY, NAN, 0.0f, -1.0f})
      EXPECT_FALSE(half_codes(dtype, step, -128, 127).settled) << step;
}

}  // namespace
}  // namespace bie::kernels::test
