#include "bie/kernels/status.h"

namespace bie::kernels {

const char* describe(Status status) {
  switch (status) {
    case Status::ok: return "ok";
    case Status::bad_shape: return "a size is out of range";
    case Status::bad_dtype: return "this dtype is not supported here";
    case Status::bad_scale: return "the step size of the activation is not a positive finite number";
    case Status::not_finite: return "the activation (bias included) holds NaN or infinity";
    case Status::too_deep: return "the contraction is too long for an int32 accumulator";
    case Status::out_of_memory: return "there is no memory for the encoded activations";
    case Status::bad_environment:
      return "BIE_MAX_ISA is none of reference, avx2, avx512bw, avxvnni, avx512, or BIE_MAX_SM is no number such as 80";
    case Status::no_device: return "there is no such CUDA device";
    case Status::old_driver: return "the NVIDIA driver is older than the CUDA runtime of this build";
    case Status::launch_failed: return "the CUDA runtime refused to start the kernel";
    case Status::device_error: return "earlier work on the CUDA device failed";
  }
  return "unknown status";
}

}  // namespace bie::kernels
