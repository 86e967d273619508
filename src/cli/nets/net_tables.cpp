// bie inspect and bie bench of exported nets.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "cli/nets/net_files.h"
#include "cli/support/result.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

using Clock = std::chrono::steady_clock;

Json sizes_of(const bie_tensor& tensor) {
  Json sizes = Json::array();
  for (std::int32_t i = 0; i < tensor.rank; ++i) sizes.push_back(tensor.sizes[i]);
  return sizes;
}

std::int64_t file_bytes(const std::string& path) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<std::int64_t>(bytes);
}

/// Medians of five rounds in turn: the machine's other work disturbs all alike.
double seconds_a_sample(runtime::Context& context, const NetInfo& net, std::int64_t batch, int repeats) {
  const std::vector<float> input(static_cast<std::size_t>(batch * net.net.input().elements), 0.5f);
  std::vector<float> output(static_cast<std::size_t>(batch * net.net.output().elements));
  std::vector<double> times;
  for (int i = 0; i < repeats + 2; ++i) {
    const Clock::time_point start = Clock::now();
    context.run(input.data(), batch, output.data());
    if (i >= 2) times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] / static_cast<double>(batch);
}

}  // namespace

void inspect_net(const std::string& path, const Global& global) {
  const NetInfo net = load_net(path);
  const std::string summary = net.net.summary();
  if (!global.json) {
    std::printf(
        "%s: a net of %lld bytes for images of %lld x %lld x %lld, %lld outputs; its weights take %lld bytes\n%s",
        printable(path).c_str(), static_cast<long long>(file_bytes(path)), static_cast<long long>(net.image[0]),
        static_cast<long long>(net.image[1]), static_cast<long long>(net.image[2]),
        static_cast<long long>(net.net.output().elements), static_cast<long long>(bie_net_weight_bytes(net.net.get())),
        summary.c_str());
    return;
  }
  Json nodes = Json::array();
  for (std::size_t at = 0; at < summary.size();) {
    const std::size_t end = summary.find('\n', at);
    nodes.push_back(summary.substr(at, end - at));
    at = end + 1;
  }
  print_json("inspect", {{"file", path},
                         {"kind", "net"},
                         {"arch", net.net.metadata("arch")},
                         {"bits", net.net.metadata("bits")},
                         {"file_bytes", file_bytes(path)},
                         {"weight_bytes", bie_net_weight_bytes(net.net.get())},
                         {"image", net.image},
                         {"input", sizes_of(net.net.input())},
                         {"input_range", formats::name(net.range)},
                         {"output", sizes_of(net.net.output())},
                         {"classes", net.classes},
                         {"nodes", nodes}});
}

void bench_nets(const std::vector<std::string>& paths, const std::vector<std::int64_t>& batches, int repeats,
                const Global& global) {
  constexpr std::size_t rounds = 5;
  std::vector<NetInfo> nets;
  for (const std::string& path : paths) nets.push_back(load_net(path));
  Json list = Json::array();
  for (const NetInfo& net : nets)
    list.push_back({{"model", net.path}, {"file_bytes", file_bytes(net.path)}, {"times", Json::array()}});
  for (const std::int64_t batch : batches) {
    std::vector<std::vector<double>> times(nets.size());
    for (std::size_t round = 0; round < rounds; ++round)
      for (std::size_t i = 0; i < nets.size(); ++i) {
        bie_options options{};
        options.max_batch = batch;
        options.threads = global.threads;
        runtime::Context context(nets[i].net, options);
        times[i].push_back(seconds_a_sample(context, nets[i], batch, repeats));
      }
    for (std::size_t i = 0; i < nets.size(); ++i) {
      std::sort(times[i].begin(), times[i].end());
      list[i]["times"].push_back({{"batch", batch}, {"seconds_an_image", times[i][rounds / 2]}});
    }
  }
  if (global.json) {
    print_json("bench", {{"models", list}});
    return;
  }
  std::printf("%6s %9s %9s %9s  %s\n", "batch", "us/image", "images/s", "bytes", "net");
  for (std::size_t b = 0; b < batches.size(); ++b)
    for (const Json& net : list) {
      const double seconds = net["times"][b]["seconds_an_image"].get<double>();
      std::printf("%6lld %9.2f %9.0f %9lld  %s\n", static_cast<long long>(batches[b]), 1e6 * seconds, 1 / seconds,
                  net["file_bytes"].get<long long>(), printable(net["model"].get<std::string>()).c_str());
    }
}

}  // namespace bie::cli
