// The step of the least square error beside every candidate by the formula, and a percentile beside sorted magnitudes.
#include "bie/kernels/step_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/kernels/replayable_rng.h"

namespace bie::kernels::test {
namespace {

std::vector<float> values(std::int64_t count, ReplayableRng& rng) {
  std::vector<float> made;
  for (std::int64_t i = 0; i < count; ++i)  // a few far out
    made.push_back(static_cast<float>(rng.between(-1000, 1000)) * (i % 50 == 0 ? 0.01f : 0.001f));
  return made;
}

double error_of(const std::vector<float>& x, double step, int bits) {
  double sum = 0;
  for (const float v : x) {
    const double low = bits == 8 ? -128 : -8, high = bits == 8 ? 127 : 7;
    const double change =
        std::clamp(std::nearbyint(static_cast<double>(v) / step), low, high) * step - static_cast<double>(v);
    sum += change * change;
  }
  return sum;
}

TEST(StepSearch, NoCandidateHasALesserError) {
  ReplayableRng rng;
  for (const int bits : {8, 4})
    for (const std::int64_t count : {1, 7, 300, 1000}) {
      const std::vector<float> x = values(count, rng);
      float step = 0, widest = 0;
      least_square_steps({x.data(), 1, count, bits}, &step);
      for (const float v : x) widest = std::max(widest, std::fabs(v) / (bits == 8 ? 127.0f : 7.0f));
      double least = error_of(x, static_cast<double>(widest), bits);
      for (int i = 1; i < 84; ++i)
        least = std::min(least, error_of(x, static_cast<double>(widest) * std::pow(0.96, i), bits));
      EXPECT_GT(step, 0);
      EXPECT_LE(error_of(x, static_cast<double>(step), bits), least * (1 + 1e-3) + 1e-12) << bits << " bits, " << count;
    }
}

TEST(StepSearch, RowsHaveStepsOfTheirOwn) {
  ReplayableRng rng;
  const std::vector<float> x = values(3 * 40, rng);
  float together[3], alone = 0;
  least_square_steps({x.data(), 3, 40, 4}, together);
  for (int row = 0; row < 3; ++row) {
    least_square_steps({x.data() + row * 40, 1, 40, 4}, &alone);
    EXPECT_EQ(together[row], alone);
  }
}

TEST(StepSearch, APercentileIsThatOfTheMagnitudes) {
  std::vector<float> x;
  for (int i = 0; i <= 1000; ++i) x.push_back(static_cast<float>(i % 2 == 0 ? i : -i));
  float step = 0;
  percentile_steps({x.data(), 1, 1001, 8}, 100, &step);
  EXPECT_FLOAT_EQ(step, 1000.0f / 127);
  percentile_steps({x.data(), 1, 1001, 4}, 90, &step);
  EXPECT_FLOAT_EQ(step, 900.0f / 7);
}

TEST(StepSearch, StepsArePositiveWhateverTheValues) {
  const float nan = std::nanf("");
  for (const std::vector<float>& x : {std::vector<float>(5, 0.0f), std::vector<float>{}, {nan, nan}}) {
    float step = 0;
    least_square_steps({x.data(), 1, static_cast<std::int64_t>(x.size()), 8}, &step);
    EXPECT_GT(step, 0);
    percentile_steps({x.data(), 1, static_cast<std::int64_t>(x.size()), 4}, 50, &step);
    EXPECT_GT(step, 0);
  }
}

}  // namespace
}  // namespace bie::kernels::test
