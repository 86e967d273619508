// Learning-rate schedules, as factors of a group's first rate.
#pragma once

#include <cstdint>
#include <string>

namespace bie::optim {

enum class ScheduleKind { constant, cosine, linear };
/// "constant", "cosine" or "linear".
const char* name(ScheduleKind kind);
ScheduleKind schedule_of(const std::string& name);  ///< A ValueError for any other name.

struct Schedule {
  ScheduleKind kind = ScheduleKind::cosine;
  double warmup = 0;  ///< share of all steps over which the factor rises from 0 in a line

  /// The factor of step `step` (from 0) of `steps`: 1, 0.5 * (1 + cos(pi * p)) or 1 - p after the warm-up, p its share
  /// done.
  double factor(std::int64_t step, std::int64_t steps) const;
};

}  // namespace bie::optim
