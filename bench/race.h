// Timing of several contenders in one run: interleaved, median and spread, so that a noisy machine disturbs all alike.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/roofline.h"

namespace bie::bench {

struct Contender {
  std::string name;
  std::function<void()> run;
  Work work = {};  ///< of a kernel of ours; a rival has none
};

struct Timing {
  std::string name;
  double median, low, high;           ///< seconds a call, operands as warm as the call before left them; quartiles
  double first;                       ///< seconds of the first call after all others had their turn, median
  double limit = 0, first_limit = 0;  ///< what work.products or reading work.panels took in the same race, median
};

/// Contenders take turns. In a turn one is called once, which is `first`, and then until 30 microseconds are over, at
/// least once. Reading panels is a contender too, and a round also measures the units. Rounds go on until they have
/// taken `seconds` a contender. Times are of the thread, so what else runs on the core does not count.
std::vector<Timing> race(const std::vector<Contender>& contenders, double seconds);

/// Prints one line a contender with its share of what the machine gives and its speed against the first contender
/// (torch's float32) and the fastest rival; returns the same as JSON.
nlohmann::json report(const nlohmann::json& shape, const std::string& title, const std::vector<Contender>& contenders,
                      const std::vector<Timing>& timings);

/// Rows of integers from a shape file; what follows the integers is its source.
struct Shape {
  std::vector<std::int64_t> sizes;
  std::string source;
};
std::vector<Shape> read_shapes(const std::string& file, std::size_t integers);

/// Settings common to all benches.
struct Settings {
  double seconds;      ///< a contender and shape
  std::string filter;  ///< only shapes whose title has it
};

/// They add their results to a JSON list. A kernel whose numbers differ from the reference's is an error.
void bench_gemm(const Settings& settings, nlohmann::json& results);
void bench_conv2d(const Settings& settings, nlohmann::json& results);
void bench_weight_only(const Settings& settings, nlohmann::json& results);

}  // namespace bie::bench
