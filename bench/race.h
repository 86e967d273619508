// Timing of several contenders in one run: interleaved, median and spread, so that a noisy machine disturbs all alike.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bie::bench {

struct Contender {
  std::string name;
  std::function<void()> run;
};

struct Timing {
  std::string name;
  double median, low, high;  ///< seconds a call; quartiles
};

/// Calls every contender once to warm up, then in turn until each has run for about `seconds`.
std::vector<Timing> race(const std::vector<Contender>& contenders, double seconds);

/// Prints one line a contender, with its speed against the first; returns the same as JSON.
nlohmann::json report(const std::string& shape, const std::vector<Timing>& timings);

/// Rows of integers from a shape file; what follows the integers is its source and is skipped.
std::vector<std::vector<std::int64_t>> read_shapes(const std::string& file, std::size_t integers);

/// Both add their results to a JSON list. A row whose integers differ from the reference's is an error.
void bench_gemm(double seconds, nlohmann::json& results);
void bench_conv2d(double seconds, nlohmann::json& results);

}  // namespace bie::bench
