#include "bie/train/threads.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <thread>

#include "models/model_plan.h"

namespace bie::train {
namespace {

namespace fs = std::filesystem;

constexpr double no_limit = std::numeric_limits<double>::infinity();

/// CPU limit of one control group by itself.
double limit_of(const fs::path& group) {
  std::string quota;
  double period = 0;
  if (std::ifstream(group / "cpu.max") >> quota >> period) {  // "max 100000" where there is none
  } else if (!(std::ifstream(group / "cpu.cfs_quota_us") >> quota &&
               std::ifstream(group / "cpu.cfs_period_us") >> period)) {
    return no_limit;
  }
  const double time = std::strtod(quota.c_str(), nullptr);  // 0 of a word, -1 where there is none
  return time > 0 && period > 0 ? time / period : no_limit;
}

bool holds(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

/// The path of the process's group in the hierarchy of version 2, or in the one of version 1 that limits CPUs.
std::string group_path(const fs::path& proc, bool version2) {
  std::ifstream file(proc / "cgroup");
  for (std::string line; std::getline(file, line);) {  // number:controllers:path
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (version2 ? controllers.empty() : holds(controllers, "cpu")) return line.substr(second + 1);
  }
  return {};
}

/// Least CPU limit of the process's control group and its ancestors, as far as they are mounted.
double limit_in(const fs::path& proc, bool version2) {
  const std::string path = group_path(proc, version2);
  if (path.empty()) return no_limit;
  double least = no_limit;
  std::ifstream mounts(proc / "mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    // number parent device root mount options [more] - type source superoptions
    std::istringstream words(line);
    std::string root, mount, type, word;
    words >> word >> word >> word >> root >> mount;
    while (words >> word && word != "-") {
    }
    words >> type >> word >> word;
    if (version2 ? type != "cgroup2" : type != "cgroup" || !holds(word, "cpu")) continue;
    const std::string below = fs::path(path).lexically_relative(root).string();
    fs::path group =
        below.empty() || below == "." || below.starts_with("..") ? fs::path(mount) : mount / fs::path(below);
    for (;; group = group.parent_path()) {
      least = std::min(least, limit_of(group));
      if (group == fs::path(mount) || !group.has_relative_path()) break;
    }
  }
  return least;
}

}  // namespace

double cpu_quota(const fs::path& proc) { return std::min(limit_in(proc, true), limit_in(proc, false)); }

int usable_cpus() {
  int cpus = static_cast<int>(std::thread::hardware_concurrency());
#ifdef __linux__
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) cpus = CPU_COUNT(&mask);
#endif
  return std::max(1, static_cast<int>(std::min<double>(cpus, std::ceil(cpu_quota()))));
}

double multiply_adds(const models::ModelConfig& config) {
  std::int64_t height = config.image[1], width = config.image[2];
  double total = 0;
  for (const models::PlannedLayer& layer : models::plan(config)) {
    if (layer.is_conv()) {
      const auto along = [&](std::int64_t size) {
        return std::max<std::int64_t>(1, (size + 2 * layer.padding - layer.kernel) / layer.stride + 1);
      };
      height = along(height);
      width = along(width);
    }
    total += static_cast<double>(layer.weights()) * (layer.is_conv() ? static_cast<double>(height * width) : 1.0);
  }
  return total;
}

int threads_for(const models::ModelConfig& config, std::int64_t images, int most) {
  const double work = multiply_adds(config) * static_cast<double>(images);
  return static_cast<int>(std::clamp(work / work_of_a_thread, 1.0, std::max(1.0, static_cast<double>(most))));
}

}  // namespace bie::train
