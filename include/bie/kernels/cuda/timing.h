// The time of a call on the device.
#pragma once

#include "bie/kernels/cuda/device.h"

namespace bie::kernels::cuda {

/// The median of several runs of `call(context)`, in microseconds between two events, after one that does not count; as
/// many as `budget_us` allows, at most 20. Waits for the device, so never inside a capture.
Status median_time(Status (*call)(void*), void* context, double budget_us, const Queue& queue, double* us);

}  // namespace bie::kernels::cuda
