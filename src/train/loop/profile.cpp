#include "bie/train/profile.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <map>
#include <memory>

#include "train/loop/clock.h"

namespace bie::train {
namespace {

/// This thread's record, while a profile is taken.
struct Record {
  struct Total {
    std::int64_t calls = 0;
    double seconds = 0;
  };
  std::map<std::string, Total> totals;
  std::vector<double> inner;  ///< of each operator under way, the seconds of those that it has called
};
thread_local Record* record = nullptr;

struct Call : at::ObserverContext {
  Clock::time_point start;
};

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction&) {
  if (record == nullptr) return nullptr;
  auto call = std::make_unique<Call>();
  record->inner.push_back(0);
  call->start = Clock::now();
  return call;
}

void leave(const at::RecordFunction& function, at::ObserverContext* context) {
  if (record == nullptr || context == nullptr) return;
  const double seconds = seconds_since(static_cast<Call*>(context)->start);
  Record::Total& total = record->totals[function.name()];
  ++total.calls;
  total.seconds += seconds - record->inner.back();
  record->inner.pop_back();
  if (!record->inner.empty()) record->inner.back() += seconds;
}

/// Records what this thread calls until it ends.
class Recording {
 public:
  explicit Recording(Record* to) {
    record = to;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(enter, leave).scopes({at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE}));
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording() {
    at::removeCallback(handle_);
    record = nullptr;
  }

 private:
  at::CallbackHandle handle_;
};

}  // namespace

std::vector<OperatorTime> operator_times(models::Classifier& model, const at::Tensor& images, std::int64_t batch,
                                         int repeats) {
  TORCH_CHECK_VALUE(images.dim() > 0 && images.size(0) > 0 && batch > 0 && repeats > 0,
                    "operator_times: expected images, a batch and repeats, got ", images.sizes(), ", ", batch, " and ",
                    repeats);
  TORCH_CHECK_VALUE(model.parameters().front().is_cpu(),
                    "operator_times: the model is on a GPU, whose work the operators only start");
  const at::NoGradGuard no_grad;
  model.eval();
  const at::Tensor x = images.index_select(0, at::arange(batch).remainder_(images.size(0)));
  for (int i = 0; i < 3; ++i) model.forward(x);
  Record found;
  double whole = 0;
  {
    const Recording recording(&found);
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < repeats; ++i) model.forward(x);
    whole = seconds_since(start);
  }
  std::vector<OperatorTime> times;
  double inside = 0;
  for (const auto& [name, total] : found.totals) {
    times.push_back({name, static_cast<double>(total.calls) / repeats, total.seconds / repeats});
    inside += total.seconds;
  }
  times.push_back({"outside of operators", 0, std::max(whole - inside, 0.0) / repeats});
  std::sort(times.begin(), times.end(),
            [](const OperatorTime& a, const OperatorTime& b) { return a.seconds > b.seconds; });
  return times;
}

}  // namespace bie::train
