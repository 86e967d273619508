// Result of a kernel call. Kernels never throw, print or exit; the caller turns a status into a sentence.
#pragma once

namespace bie::kernels {

enum class Status {
  ok,
  bad_shape,        ///< a size is negative, or an output would be empty where that makes no sense
  bad_dtype,        ///< the kernel has no form for this activation or output dtype
  bad_scale,        ///< the activation's step size is not a positive finite number
  not_finite,       ///< the activation (bias included) holds NaN or infinity
  too_deep,         ///< the contraction is so long that an int32 accumulator could overflow
  out_of_memory,    ///< no room for arranged activations
  bad_environment,  ///< BIE_MAX_ISA or BIE_MAX_SM holds what is no instruction set or architecture of ours
  no_device,        ///< there is no such CUDA device
  old_driver,       ///< the NVIDIA driver is older than the CUDA runtime of this build
  launch_failed,    ///< the CUDA runtime refused to start the kernel; nothing was written
  device_error,     ///< earlier work on the device failed (cuda/device.h, last_error)
};

/// A short English phrase, without a full stop, for use inside a sentence.
const char* describe(Status status);

}  // namespace bie::kernels
