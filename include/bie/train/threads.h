// How many threads a run gets where nobody says.
#pragma once

#include <cstdint>
#include <filesystem>

#include "bie/models/classifier.h"

namespace bie::train {

/// CPU time that the process's control groups allow it, in CPUs: the least cpu.max (v2) or cpu.cfs_quota_us /
/// cpu.cfs_period_us (v1) of its group and of those above it; infinity where nothing limits it.
/// @param proc  where cgroup and mountinfo of the process are.
double cpu_quota(const std::filesystem::path& proc = "/proc/self");

/// CPUs of the process's affinity mask, no more than the quota, rounded up; at least 1.
int usable_cpus();

/// Multiply-adds of one image's forward pass, pools left out of account.
double multiply_adds(const models::ModelConfig& config);

/// Threads for steps of this many images: one for each `work_of_a_thread` multiply-adds of a step, from 1 to `most`.
/// Waiting for another thread costs a small step more than it saves. docs/measured/threads.md says why this size.
int threads_for(const models::ModelConfig& config, std::int64_t images, int most);
inline constexpr double work_of_a_thread = 3e7;

}  // namespace bie::train
