#include "bie/kernels/cuda/timing.h"

#include <algorithm>

#include "kernels/cuda/launch.cuh"

namespace bie::kernels::cuda {
namespace {

constexpr int most_runs = 20;

struct Event {
  cudaEvent_t event = nullptr;
  Event() { cudaEventCreate(&event); }
  ~Event() { cudaEventDestroy(event); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
};

}  // namespace

Status median_time(Status (*call)(void*), void* context, double budget_us, const Queue& queue, double* us) {
  if (!enter(queue)) return Status::no_device;
  const auto stream = static_cast<cudaStream_t>(queue.stream);
  const Event before, after;
  double times[most_runs], spent = 0;
  int runs = -1;  // the first loads the kernel
  while (runs < most_runs && (runs < 1 || spent < budget_us)) {
    cudaEventRecord(before.event, stream);
    const Status status = call(context);
    if (status != Status::ok) return status;
    cudaEventRecord(after.event, stream);
    float ms = 0;
    cudaError_t error = cudaEventSynchronize(after.event);
    if (error == cudaSuccess) error = cudaEventElapsedTime(&ms, before.event, after.event);
    if (error != cudaSuccess) {
      cudaGetLastError();
      return status_of(error);
    }
    if (runs >= 0) times[runs] = 1000.0 * ms;
    spent += 1000.0 * ms;
    ++runs;
  }
  std::nth_element(times, times + runs / 2, times + runs);
  *us = times[runs / 2];
  return Status::ok;
}

}  // namespace bie::kernels::cuda
