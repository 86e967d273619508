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
    case Status::bad_environment: return "BIE_MAX_ISA is none of reference, avx2, avx512";
  }
  return "unknown status";
}

}  // namespace bie::kernels
