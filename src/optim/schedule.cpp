#include "bie/optim/schedule.h"

#include <c10/util/Exception.h>

#include <cmath>

#include "layers/named.h"

namespace bie::optim {

namespace {

constexpr layers::Named<ScheduleKind> kinds[] = {
    {ScheduleKind::constant, "constant"}, {ScheduleKind::cosine, "cosine"}, {ScheduleKind::linear, "linear"}};

}  // namespace

const char* name(ScheduleKind kind) { return layers::name_of(kinds, kind); }

ScheduleKind schedule_of(const std::string& text) { return layers::value_of(kinds, "the schedule", text); }

double Schedule::factor(std::int64_t step, std::int64_t steps) const {
  TORCH_CHECK_VALUE(warmup >= 0 && warmup < 1, "a schedule's warm-up: expected a share in [0, 1), got ", warmup);
  TORCH_CHECK_VALUE(step >= 0 && step < steps, "a schedule of ", steps, " steps has no step ", step);
  const double rising = warmup * static_cast<double>(steps), done = static_cast<double>(step);
  if (done < rising) return (done + 1) / (rising + 1);
  const double share = (done - rising) / (static_cast<double>(steps) - rising);
  if (kind == ScheduleKind::constant) return 1;
  return kind == ScheduleKind::linear ? 1 - share : 0.5 * (1 + std::cos(M_PI * share));
}

}  // namespace bie::optim
