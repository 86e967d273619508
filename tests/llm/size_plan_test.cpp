// Types for a size: what is chosen fits, and no plan that fits is much better.
#include "bie/llm/size_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace bie::llm {
namespace {

using Groups = std::vector<std::vector<TypeCost>>;

std::int64_t bytes_of(const Groups& groups, const std::vector<std::size_t>& chosen) {
  std::int64_t sum = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) sum += groups[g][chosen[g]].bytes;
  return sum;
}

double divergence_of(const Groups& groups, const std::vector<std::size_t>& chosen) {
  double sum = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) sum += groups[g][chosen[g]].divergence;
  return sum;
}

/// The least divergence of all plans that fit; infinity where none does.
double least(const Groups& groups, std::int64_t bytes) {
  std::vector<std::size_t> chosen(groups.size());
  double best = std::numeric_limits<double>::infinity();
  for (;;) {
    if (bytes_of(groups, chosen) <= bytes) best = std::min(best, divergence_of(groups, chosen));
    std::size_t g = 0;
    while (g < groups.size() && ++chosen[g] == groups[g].size()) chosen[g++] = 0;
    if (g == groups.size()) return best;
  }
}

/// Groups whose errors fall to about a quarter with each bit, as those of weights do.
Groups random_groups(std::mt19937& random, std::size_t count) {
  Groups groups;
  for (std::size_t g = 0; g < count; ++g) {
    const auto size = static_cast<std::int64_t>(1 + random() % 20);
    double divergence = 0.001 * static_cast<double>(1 + random() % 1000);
    std::vector<TypeCost> costs;
    for (const std::int64_t bits : {2, 4, 5, 8}) {
      costs.push_back({nullptr, size * bits, divergence});
      divergence /= bits == 4 ? 4.5 : 16;
    }
    groups.push_back(costs);
  }
  return groups;
}

TEST(SizePlan, IsNearTheBestOfAllPlansThatFit) {
  std::mt19937 random(5);
  double ratios = 0;
  int plans = 0;
  for (int trial = 0; trial < 50; ++trial) {
    const Groups groups = random_groups(random, 6);
    std::int64_t most = 0, fewest = 0;
    for (const auto& costs : groups) {
      fewest += costs.front().bytes;
      most += costs.back().bytes;
    }
    for (std::int64_t bytes = fewest; bytes <= most + 5; bytes += 7) {
      const std::vector<std::size_t> chosen = cheapest_types(groups, bytes);
      ASSERT_EQ(chosen.size(), groups.size());
      ASSERT_LE(bytes_of(groups, chosen), bytes);
      const double ratio = divergence_of(groups, chosen) / least(groups, bytes);
      ASSERT_LE(ratio, 2) << trial << ", " << bytes;
      ratios += ratio;
      ++plans;
    }
    EXPECT_TRUE(cheapest_types(groups, fewest - 1).empty());
    EXPECT_EQ(bytes_of(groups, cheapest_types(groups, fewest)), fewest);
    EXPECT_EQ(bytes_of(groups, cheapest_types(groups, most)), most);
  }
  EXPECT_LE(ratios / plans, 1.01) << "of " << plans;
}

TEST(SizePlan, OfEqualLossesTheSmallerTypeIsTaken) {
  const Groups groups = {{{nullptr, 10, 0.0}, {nullptr, 20, 0.0}}, {{nullptr, 10, 1.0}, {nullptr, 20, 0.5}}};
  EXPECT_EQ(cheapest_types(groups, 1000), (std::vector<std::size_t>{0, 1}));
}

TEST(SizePlan, ALargerTypeThatLosesMoreIsLeftOut) {
  const Groups groups = {{{nullptr, 10, 1.0}, {nullptr, 20, 2.0}, {nullptr, 30, 0.1}}};
  EXPECT_EQ(cheapest_types(groups, 29), std::vector<std::size_t>{0});
  EXPECT_EQ(cheapest_types(groups, 30), std::vector<std::size_t>{2});
}

TEST(SizePlan, WithoutAGroupNothingIsChosen) { EXPECT_TRUE(cheapest_types({}, 5).empty()); }

}  // namespace
}  // namespace bie::llm
