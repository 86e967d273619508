#include "kernels/cuda/tensor_map.h"

#include "kernels/cuda/launch.cuh"

namespace bie::kernels::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

/// From the driver, which nothing here links.
Encode encoder() {
  static const Encode found = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const bool there = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault,
                                                        &result) == cudaSuccess &&
                       result == cudaDriverEntryPointSuccess;
    if (!there) cudaGetLastError();
    return there ? reinterpret_cast<Encode>(entry) : nullptr;
  }();
  return found;
}

}  // namespace

Status make_tensor_map(const void* data, std::int64_t rows, std::int64_t columns, int bytes, std::int64_t stride,
                       Box box, CUtensorMap* map) {
  const Encode encode = encoder();
  if (encode == nullptr) return status_of(cudaErrorInvalidDeviceFunction);
  const CUtensorMapDataType type = bytes == 1   ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                   : bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16
                                                : CU_TENSOR_MAP_DATA_TYPE_UINT32;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(stride)};
  const cuuint32_t boxes[2] = {static_cast<cuuint32_t>(box.columns), static_cast<cuuint32_t>(box.rows)};
  const cuuint32_t steps[2] = {1, 1};
  const CUtensorMapSwizzle swizzle = box.columns * bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B;
  const CUresult made =
      encode(map, type, 2, const_cast<void*>(data), sizes, strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return status_of(made == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue);
}

}  // namespace bie::kernels::cuda
