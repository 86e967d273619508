#include "bench/race.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace bie::bench {
namespace {

using Clock = std::chrono::steady_clock;

double timed(const std::function<void()>& run) {
  const Clock::time_point start = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

std::vector<Timing> race(const std::vector<Contender>& contenders, double seconds) {
  double slowest = 1e-7;
  for (const Contender& c : contenders) {
    c.run();
    slowest = std::max(slowest, timed(c.run));
  }
  const int rounds = std::clamp(static_cast<int>(seconds / slowest), 9, 2000);
  std::vector<std::vector<double>> times(contenders.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < contenders.size(); ++i) times[i].push_back(timed(contenders[i].run));
  std::vector<Timing> timings;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    std::vector<double>& t = times[i];
    std::sort(t.begin(), t.end());
    timings.push_back({contenders[i].name, t[t.size() / 2], t[t.size() / 4], t[t.size() * 3 / 4]});
  }
  return timings;
}

nlohmann::json report(const std::string& shape, const std::vector<Timing>& timings) {
  nlohmann::json list = nlohmann::json::array();
  std::printf("%s\n", shape.c_str());
  for (const Timing& t : timings) {
    const double ratio = timings[0].median / t.median;
    std::printf("  %-28s %12.1f us   (quartiles %.1f .. %.1f)   %7.2fx\n", t.name.c_str(), 1e6 * t.median, 1e6 * t.low,
                1e6 * t.high, ratio);
    list.push_back({{"shape", shape},
                    {"name", t.name},
                    {"median_s", t.median},
                    {"q1_s", t.low},
                    {"q3_s", t.high},
                    {"times_torch_fp32", ratio}});
  }
  std::fflush(stdout);
  return list;
}

std::vector<std::vector<std::int64_t>> read_shapes(const std::string& file, std::size_t integers) {
  std::ifstream in(std::string(BIE_SHAPES_DIR) + "/" + file);
  if (!in) throw std::runtime_error("cannot open the shape file " + file);
  std::vector<std::vector<std::int64_t>> shapes;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::vector<std::int64_t> shape(integers);
    for (std::int64_t& size : shape)
      if (!(words >> size) || size < 0) throw std::runtime_error(file + ": cannot read the line '" + line + "'");
    shapes.push_back(shape);
  }
  return shapes;
}

}  // namespace bie::bench
