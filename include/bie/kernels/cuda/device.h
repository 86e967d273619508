// Arguments common to all CUDA kernels: a queue, scalars that may live on the device, and facts about the GPU. These
// headers include nothing of CUDA and exist in every build; their functions are defined only where BIE_CUDA is on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bie/kernels/status.h"

namespace bie::kernels::cuda {

/// Destination of work: a stream (a cudaStream_t) and the number of its device.
struct Queue {
  void* stream;
  int device;
};

/// A float32 that the kernel reads: from the device's memory, or `value` where `device` is null. No call waits for the
/// device to learn one.
struct Scalar {
  const float* device = nullptr;
  float value = 0;
};

/// Facts about a GPU that the choice of a kernel may depend on. A plain struct, so that tests can pretend any GPU.
struct Gpu {
  int sm = 0;  ///< compute capability, 90 for 9.0
  int multiprocessors = 0;
  char name[64] = {};
  int driver = 0;  ///< the CUDA version the driver knows, 13000 for 13.0
};

/// The GPU of that number, its `sm` lowered to BIE_MAX_SM where that is set (kernels above it are then not chosen).
/// Read once. Status::no_device where there is none, Status::old_driver, Status::bad_environment for a BIE_MAX_SM that
/// is no number.
Status gpu(int device, const Gpu** facts);

/// The CUDA runtime's message for this thread's last call that returned launch_failed or device_error.
const char* last_error();

}  // namespace bie::kernels::cuda
