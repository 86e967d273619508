#include "kernels/cuda/launch.cuh"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace bie::kernels::cuda {
namespace {

constexpr int most_devices = 64;

struct Facts {
  std::mutex mutex;
  Gpu gpu;
  Status status = Status::no_device;
  bool known = false;
};

/// BIE_MAX_SM as a number, 0 where it is not set.
Status cap_sm(int* sm) {
  const char* text = std::getenv("BIE_MAX_SM");
  if (text == nullptr || *text == '\0') return Status::ok;
  char* end = nullptr;
  const long cap = std::strtol(text, &end, 10);
  if (*end != '\0' || cap < 10 || cap > 999) return Status::bad_environment;
  *sm = std::min(*sm, static_cast<int>(cap));
  return Status::ok;
}

void read(int device, Facts* facts) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) {  // not remembered: it may be there later
    cudaGetLastError();
    int driver = 0;  // 0 where there is none, for which the runtime has the same error
    const bool has_driver = cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0;
    facts->status = error == cudaErrorInsufficientDriver && has_driver ? Status::old_driver : Status::no_device;
    return;
  }
  Gpu& gpu = facts->gpu;
  gpu.sm = 10 * properties.major + properties.minor;
  gpu.multiprocessors = properties.multiProcessorCount;
  std::memcpy(gpu.name, properties.name, std::min(std::strlen(properties.name), sizeof gpu.name - 1));
  cudaDriverGetVersion(&gpu.driver);
  facts->status = cap_sm(&gpu.sm);
  facts->known = true;
}

}  // namespace

Status gpu(int device, const Gpu** facts) {
  static std::array<Facts, most_devices> all;
  if (device < 0 || device >= most_devices) return Status::no_device;
  Facts& mine = all[static_cast<std::size_t>(device)];
  const std::lock_guard<std::mutex> lock(mine.mutex);
  if (!mine.known) read(device, &mine);
  *facts = &mine.gpu;
  return mine.status;
}

cudaError_t& last_error_code() {
  thread_local cudaError_t code = cudaSuccess;
  return code;
}

const char* last_error() { return cudaGetErrorString(last_error_code()); }

}  // namespace bie::kernels::cuda
