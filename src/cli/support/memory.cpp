#include "cli/support/memory.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace bie::cli {
namespace {

/// The number behind a word at the beginning of a line.
std::optional<std::int64_t> number_behind(const char* path, const std::string& word) {
  std::ifstream file(path);
  std::string found;
  std::int64_t number = 0;
  for (std::string line; file >> found; std::getline(file, line))
    if (found == word && file >> number) return number;
  return std::nullopt;
}

/// Memory left by the control group, if its limit is a number and not "max".
std::optional<std::int64_t> left_by_group() {
  std::ifstream file("/sys/fs/cgroup/memory.max");
  std::int64_t most = 0;
  if (!(file >> most)) return std::nullopt;
  // Pages of files are given back when memory is wanted.
  return std::max<std::int64_t>(0, most - number_behind("/sys/fs/cgroup/memory.stat", "anon").value_or(0));
}

}  // namespace

std::optional<std::int64_t> available_memory() {
  std::optional<std::int64_t> available = number_behind("/proc/meminfo", "MemAvailable:");
  if (available) *available *= 1024;
  const std::optional<std::int64_t> group = left_by_group();
  if (group && available) return std::min(*group, *available);
  return group ? group : available;
}

}  // namespace bie::cli
