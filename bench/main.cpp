// bie_bench: one thread, pinned to a core, text on stdout and JSON on request.
#include <ATen/Parallel.h>
#include <sched.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <fstream>

#include "bench/race.h"

int main(int argc, char** argv) {
  CLI::App app{"Every kernel against torch's float32, bfloat16 and int8 operators and against what the core can do",
               "bie_bench"};
  double seconds = 0.2;
  int core = -1;
  std::string json_file, filter;
  app.add_option("--seconds", seconds, "time a contender and shape")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--json", json_file, "also write the results here");
  app.add_option("--filter", filter, "only shapes whose title has this, such as 'linear m=1 ' or 'conv2d 3x3'");
  app.add_option("--core", core, "run there (default: where the process starts)")->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core < 0 ? sched_getcpu() : core, &cores);
    if (sched_setaffinity(0, sizeof cores, &cores) != 0) throw std::runtime_error("cannot run on that core");
    at::set_num_threads(1);
    nlohmann::json reading;
    std::printf("one core reads:");
    for (const auto& level : bie::bench::reading_speeds()) {
      std::printf("  %s %.0f GB/s", level.name, level.bytes_a_second / 1e9);
      reading[level.name] = level.bytes_a_second;
    }
    std::printf("\n");
    nlohmann::json results = nlohmann::json::array();
    const bie::bench::Settings settings{seconds, filter};
    bie::bench::bench_gemm(settings, results);
    bie::bench::bench_conv2d(settings, results);
    bie::bench::bench_weight_only(settings, results);
    if (!json_file.empty()) {
      std::ofstream out(json_file);
      out << nlohmann::json{{"reading_bytes_a_second", reading}, {"results", results}}.dump(1) << "\n";
      if (!out) throw std::runtime_error("cannot write " + json_file);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bie_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
