#include "bie/train/device.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <algorithm>
#include <string_view>

namespace bie::train {
namespace {

constexpr std::string_view cuda_prefix = "cuda:";

/// The N of "cuda:N"; 0 for "cuda"; -1 for anything else.
int gpu_index(std::string_view name) {
  if (name == "cuda") return 0;
  if (!name.starts_with(cuda_prefix)) return -1;
  const std::string_view digits = name.substr(cuda_prefix.size());
  const bool whole = std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  return whole && !digits.empty() && digits.size() <= 2 ? std::stoi(std::string(digits)) : -1;
}

template <class... Parts>
[[noreturn]] void miss(const std::string& name, const Parts&... parts) {
  throw MissingDevice({__func__, __FILE__, __LINE__}, c10::str("the device is '", name, "', but ", parts...));
}

}  // namespace

c10::Device device_of(const std::string& name) {
  if (name == "cpu") return c10::kCPU;
  const int index = gpu_index(name);
  TORCH_CHECK_VALUE(index >= 0, "the device: expected cpu, cuda or cuda:N, got '", name, "'");
  const bool loaded = ::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) != nullptr;
  const char* fault = loaded ? nullptr : ::dlerror();
  if (!loaded) miss(name, "torch's CUDA library cannot be loaded: ", fault != nullptr ? fault : "no reason given");
  const int count = at::globalContext().hasCUDA() ? c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount() : 0;
  if (index >= count) miss(name, count, " GPUs can be used here");
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

}  // namespace bie::train
