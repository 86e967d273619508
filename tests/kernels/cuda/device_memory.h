// Memory of the GPU for tests, of exactly the size asked for, so that compute-sanitizer sees the first byte too many.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <vector>

#include "bie/kernels/cuda/device.h"
#include "tests/kernels/every_kernel.h"

namespace bie::kernels::test {

/// A skip that says why, in a test that wants a GPU.
#define BIE_NEEDS_GPU() \
  if (!has_gpu()) GTEST_SKIP() << "there is no CUDA device"

inline bool has_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

inline const cuda::Gpu& this_gpu() {
  const cuda::Gpu* facts = nullptr;
  EXPECT_EQ(cuda::gpu(0, &facts), Status::ok);
  return *facts;
}

inline constexpr cuda::Queue default_queue{nullptr, 0};

/// Waits, and says what went wrong on the device.
inline testing::AssertionResult device_is_well() {
  const cudaError_t error = cudaDeviceSynchronize();
  if (error == cudaSuccess) return testing::AssertionSuccess();
  return testing::AssertionFailure() << cudaGetErrorString(error);
}

class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t bytes) : size_(bytes) {
    if (bytes > 0 && cudaMalloc(&data_, bytes) != cudaSuccess) ADD_FAILURE() << "no memory on the device";
    if (bytes > 0) cudaMemset(data_, 0xcd, bytes);
  }
  template <class T>
  explicit DeviceBytes(const std::vector<T>& from) : DeviceBytes(from.size() * sizeof(T)) {
    if (size_ > 0) cudaMemcpy(data_, from.data(), size_, cudaMemcpyHostToDevice);
  }
  ~DeviceBytes() { cudaFree(data_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  void* get() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  void read(void* to) const {
    if (size_ > 0) cudaMemcpy(to, data_, size_, cudaMemcpyDeviceToHost);
  }
  template <class T>
  std::vector<T> values() const {
    std::vector<T> result(size_ / sizeof(T));
    read(result.data());
    return result;
  }

 private:
  void* data_ = nullptr;
  std::size_t size_;
};

/// GuardedBytes on the device: run(data) writes there.
template <class Run>
void run_guarded(GuardedBytes* host, std::size_t bytes, const Run& run) {
  const std::vector<unsigned char> before = host->all();
  const DeviceBytes device(before);
  run(device.as<unsigned char>() + (before.size() - bytes) / 2);
  ASSERT_TRUE(device_is_well());
  device.read(host->all_data());
}

}  // namespace bie::kernels::test
