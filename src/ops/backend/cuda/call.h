// Helpers for calling CUDA kernels from operators: guard, queue, status. Includes c10's core alone of torch, so that
// the library also loads beside a torch without CUDA: c10's virtual guard tells the stream, and nothing of torch's CUDA
// half is linked.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include "bie/kernels/cuda/quantize.h"
#include "ops/backend/cuda/products.h"
#include "ops/checks.h"
#include "ops/dispatcher.h"

namespace bie::ops::cuda {

/// The current stream of the device.
kernels::cuda::Queue cuda_queue(at::Device device);

/// Makes a device current for as long as it lives; what it queues goes to that device's current stream.
class CudaCall {
 public:
  CudaCall(const char* op, at::Device device) : guard_(device), op_(op), queue_(cuda_queue(device)) {}

  /// kernel(arguments..., queue), and a ValueError where it was not started.
  template <class... P, class... A>
  void operator()(kernels::Status (*kernel)(P...), const A&... arguments) const {
    const kernels::Status status = kernel(arguments..., queue_);
    if (status == kernels::Status::no_device) gpu_of(op_, queue_.device);  // which knows a driver that is too old
    check_status(op_, status);
  }
  /// Memory for the kernels that take totals, from torch's allocator.
  at::Tensor workspace() const {
    return at::empty({kernels::cuda::reduction_bytes}, at::TensorOptions(at::kByte).device(guard_.current_device()));
  }

 private:
  c10::DeviceGuard guard_;
  const char* op_;
  kernels::cuda::Queue queue_;
};

}  // namespace bie::ops::cuda
