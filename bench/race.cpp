#include "bench/race.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>

namespace bie::bench {
namespace {

double timed(const std::function<void()>& run, int calls) {
  const double start = thread_seconds();
  for (int i = 0; i < calls; ++i) run();
  return (thread_seconds() - start) / calls;
}

double quantile(std::vector<double>& values, double part) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

std::vector<Timing> race(const std::vector<Contender>& contenders, double seconds) {
  constexpr double turn = 30e-6;
  std::vector<std::function<void()>> runs;
  for (const Contender& c : contenders) runs.push_back(c.run);
  // Reading comes after all that multiply: right behind its kernel it would find the panels in the cache.
  for (const Contender& c : contenders)
    if (c.work.unit != Unit::none) runs.push_back([&c] { read_all(c.work.panels, c.work.panel_bytes); });
  double round_time = 0;
  std::vector<int> calls;
  for (const auto& run : runs) {
    run();
    const double call = timed(run, 1);
    calls.push_back(std::clamp(static_cast<int>(turn / call), 1, 200));
    round_time += call + std::max(call, turn);
  }
  const double all = seconds * static_cast<double>(runs.size());
  const int rounds = std::clamp(static_cast<int>(all / round_time), 7, 2000);
  std::vector<std::vector<double>> first(runs.size()), warm(runs.size());
  std::array<std::vector<double>, units> rates;
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      first[i].push_back(timed(runs[i], 1));
      warm[i].push_back(timed(runs[i], calls[i]));
    }
    for (int u = 1; u < units; ++u) {
      const auto unit = static_cast<Unit>(u);
      const auto has_unit = [unit](const Contender& c) { return c.work.unit == unit; };
      if (std::any_of(contenders.begin(), contenders.end(), has_unit))
        rates[static_cast<std::size_t>(u)].push_back(burst(unit));
    }
  }
  std::vector<Timing> timings;
  std::size_t i = 0, reading = contenders.size();
  for (const Contender& c : contenders) {
    Timing t{c.name, quantile(warm[i], 0.5), quantile(warm[i], 0.25), quantile(warm[i], 0.75), quantile(first[i], 0.5)};
    ++i;
    if (c.work.unit != Unit::none) {
      const double multiply = c.work.products / quantile(rates[static_cast<std::size_t>(c.work.unit)], 0.5);
      t.limit = std::max(multiply, quantile(warm[reading], 0.5));
      t.first_limit = std::max(multiply, quantile(first[reading], 0.5));
      ++reading;
    }
    timings.push_back(t);
  }
  return timings;
}

nlohmann::json report(const nlohmann::json& shape, const std::string& title, const std::vector<Contender>& contenders,
                      const std::vector<Timing>& timings) {
  double fastest = std::numeric_limits<double>::infinity(), fastest_first = fastest;
  for (std::size_t i = 0; i < contenders.size(); ++i)
    if (contenders[i].work.panels == nullptr) {  // a rival; kernels of ours may use no unit either
      fastest = std::min(fastest, timings[i].median);
      fastest_first = std::min(fastest_first, timings[i].first);
    }
  nlohmann::json lines = nlohmann::json::array();
  std::printf("%s\n  %-30s %12s %25s %12s %10s %10s %14s\n", title.c_str(), "", "us", "quartiles", "first call",
              "of limit", "of float32", "of best rival");
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const Timing& t = timings[i];
    nlohmann::json line = {{"name", t.name},
                           {"median_s", t.median},
                           {"q1_s", t.low},
                           {"q3_s", t.high},
                           {"first_s", t.first},
                           {"times_torch_float32", timings[0].median / t.median},
                           {"times_fastest_rival", fastest / t.median},
                           {"times_fastest_rival_first", fastest_first / t.first}};
    std::printf("  %-30s %12.1f %12.1f .. %9.1f %12.1f", t.name.c_str(), 1e6 * t.median, 1e6 * t.low, 1e6 * t.high,
                1e6 * t.first);
    if (contenders[i].work.unit == Unit::none) {
      std::printf(" %10s", "");
    } else {
      line.update({{"limit_s", t.limit},
                   {"of_limit", t.limit / t.median},
                   {"first_limit_s", t.first_limit},
                   {"of_first_limit", t.first_limit / t.first},
                   {"products_a_second", contenders[i].work.products / t.median}});
      std::printf(" %8.0f %%", 100 * t.limit / t.median);
    }
    std::printf(" %9.2fx %13.2fx\n", timings[0].median / t.median, fastest / t.median);
    lines.push_back(line);
  }
  std::fflush(stdout);
  return {{"shape", shape}, {"title", title}, {"contenders", lines}};
}

std::vector<Shape> read_shapes(const std::string& file, std::size_t integers) {
  std::ifstream in(std::string(BIE_SHAPES_DIR) + "/" + file);
  if (!in) throw std::runtime_error("cannot open the shape file " + file);
  std::vector<Shape> shapes;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    Shape shape{std::vector<std::int64_t>(integers), {}};
    for (std::int64_t& size : shape.sizes)
      if (!(words >> size) || size < 0) throw std::runtime_error(file + ": cannot read the line '" + line + "'");
    std::getline(words >> std::ws, shape.source);
    shapes.push_back(shape);
  }
  return shapes;
}

}  // namespace bie::bench
