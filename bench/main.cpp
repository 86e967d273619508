// bie_bench: one thread, pinned to the core it starts on, text on stdout and JSON on request.
#include <ATen/Parallel.h>
#include <sched.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <fstream>

#include "bench/race.h"

int main(int argc, char** argv) {
  CLI::App app{"Every kernel row against torch float32, single-threaded and pinned, interleaved in one run",
               "bie_bench"};
  double seconds = 1;
  std::string json_file;
  app.add_option("--seconds", seconds, "time a contender and shape")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--json", json_file, "also write the results here");
  CLI11_PARSE(app, argc, argv);
  try {
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(sched_getcpu(), &core);
    sched_setaffinity(0, sizeof core, &core);
    at::set_num_threads(1);
    nlohmann::json results = nlohmann::json::array();
    bie::bench::bench_gemm(seconds, results);
    bie::bench::bench_conv2d(seconds, results);
    if (!json_file.empty()) {
      std::ofstream out(json_file);
      out << results.dump(1) << "\n";
      if (!out) throw std::runtime_error("cannot write " + json_file);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bie_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
