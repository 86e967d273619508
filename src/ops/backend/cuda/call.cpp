#include "ops/backend/cuda/call.h"

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace bie::ops::cuda {

kernels::cuda::Queue cuda_queue(at::Device device) {
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  return {guard.getStream(device).native_handle(), static_cast<int>(device.index())};
}

}  // namespace bie::ops::cuda
