#include "bie/kernels/status.h"

#include <string>

#include "bie/kernels/isa.h"

namespace bie::kernels {
namespace {

const char* bad_environment() {
  static const std::string once = [] {
    std::string names;
    for (const IsaFacts& f : isa_facts)
      if (belongs_to(f.isa, this_architecture)) names += std::string(names.empty() ? "" : ", ") + f.name;
    return "BIE_MAX_ISA is none of " + names + ", or BIE_MAX_SM is no number such as 80";
  }();
  return once.c_str();
}

}  // namespace

const char* describe(Status status) {
  switch (status) {
    case Status::ok: return "ok";
    case Status::bad_shape: return "a size is out of range";
    case Status::bad_dtype: return "this dtype is not supported here";
    case Status::bad_scale: return "the step size of the activation is not a positive finite number";
    case Status::not_finite: return "the activation (bias included) holds NaN or infinity";
    case Status::too_deep: return "the contraction is too long for an int32 accumulator";
    case Status::out_of_memory: return "there is no memory for the encoded activations";
    case Status::bad_environment: return bad_environment();
    case Status::no_device: return "there is no such CUDA device";
    case Status::old_driver: return "the NVIDIA driver is older than the CUDA runtime of this build";
    case Status::launch_failed: return "the CUDA runtime refused to start the kernel";
    case Status::device_error: return "earlier work on the CUDA device failed";
  }
  return "unknown status";
}

}  // namespace bie::kernels
