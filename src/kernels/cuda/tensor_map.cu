#include "kernels/cuda/tensor_map.h"

#include <cstdlib>

#include "kernels/cuda/launch.cuh"

namespace bie::kernels::cuda {
namespace {

/// A function of the driver, which nothing here links; null if there is none.
template <class Function>
Function of_driver(const char* name) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const bool there = cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &result) == cudaSuccess &&
                     result == cudaDriverEntryPointSuccess;
  if (!there) cudaGetLastError();
  return there ? reinterpret_cast<Function>(entry) : nullptr;
}

CUtensorMapDataType type_of(int bytes) {
  return bytes == 1   ? CU_TENSOR_MAP_DATA_TYPE_UINT8
         : bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16
                      : CU_TENSOR_MAP_DATA_TYPE_UINT32;
}

CUtensorMapSwizzle swizzle_of(Box box, int bytes) {
  return box.columns * bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B;
}

Status made(CUresult result) { return status_of(result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue); }

}  // namespace

Status make_tensor_map(const void* data, std::int64_t rows, std::int64_t columns, int bytes, std::int64_t stride,
                       Box box, CUtensorMap* map) {
  static const auto encode = of_driver<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  if (encode == nullptr) return status_of(cudaErrorInvalidDeviceFunction);
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(stride)};
  const cuuint32_t boxes[2] = {static_cast<cuuint32_t>(box.columns), static_cast<cuuint32_t>(box.rows)};
  const cuuint32_t steps[2] = {1, 1};
  return made(encode(map, type_of(bytes), 2, const_cast<void*>(data), sizes, strides, boxes, steps,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(box, bytes), CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

bool maps_windows(const WindowMap& w) {
  constexpr int most_stride = 8, most_corner = 127;
  return w.stride_h <= most_stride && w.stride_w <= most_stride && std::abs(w.pad_h) <= most_corner &&
         std::abs(w.pad_w) <= most_corner && std::int64_t{w.kernel_h - 1} * w.dil_h <= most_corner &&
         std::int64_t{w.kernel_w - 1} * w.dil_w <= most_corner && w.pixel_bytes > 0 && w.in_h > 0 && w.in_w > 0;
}

Status make_window_map(const void* data, const WindowMap& w, int bytes, Box box, CUtensorMap* map) {
  static const auto encode = of_driver<decltype(&cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
  if (encode == nullptr) return status_of(cudaErrorInvalidDeviceFunction);
  const auto whole = [](std::int64_t value) { return static_cast<cuuint64_t>(value); };
  const cuuint64_t sizes[4] = {whole(w.pixel_bytes / bytes), whole(w.in_w), whole(w.in_h), whole(w.batch)};
  const cuuint64_t strides[3] = {whole(w.pixel_bytes), whole(w.pixel_bytes * w.in_w),
                                 whole(w.pixel_bytes * w.in_w * w.in_h)};
  // Where the first tap of a window may lie, from the first pixel and from the last.
  const int lower[2] = {-w.pad_w, -w.pad_h};
  const int upper[2] = {w.pad_w - (w.kernel_w - 1) * w.dil_w, w.pad_h - (w.kernel_h - 1) * w.dil_h};
  const cuuint32_t steps[4] = {1, static_cast<cuuint32_t>(w.stride_w), static_cast<cuuint32_t>(w.stride_h), 1};
  return made(encode(map, type_of(bytes), 4, const_cast<void*>(data), sizes, strides, lower, upper,
                     static_cast<cuuint32_t>(box.columns), static_cast<cuuint32_t>(box.rows), steps,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(box, bytes), CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

}  // namespace bie::kernels::cuda
