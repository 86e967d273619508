#include "ops/backend/backend.h"

#include <c10/util/Exception.h>

#define BIE_CALL(Interface, name) name(),

namespace bie::ops {
namespace {

Backend cpu_backend() {
  using namespace cpu;
  return {BIE_BACKEND_INTERFACES(BIE_CALL)};
}

#if BIE_WITH_CUDA
Backend cuda_backend() {
  using namespace cuda;
  return {BIE_BACKEND_INTERFACES(BIE_CALL)};
}
#endif

}  // namespace

const Backend& backend_of(const char* op, at::Device device) {
  static const Backend on_cpu = cpu_backend();
  if (device.is_cpu() || device.is_meta()) return on_cpu;
  TORCH_CHECK_VALUE(device.is_cuda(), op, ": the device: expected cpu or cuda, got ", device);
#if BIE_WITH_CUDA
  static const Backend on_cuda = cuda_backend();
  return on_cuda;
#else
  TORCH_CHECK(false, op, ": this build of bie has no CUDA kernels; build it with -DBIE_CUDA=ON");
#endif
}

}  // namespace bie::ops
