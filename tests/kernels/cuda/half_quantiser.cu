#include "tests/kernels/cuda/half_quantiser.h"

#include "kernels/cuda/half_quantiser.cuh"

namespace bie::kernels::test {
namespace {

constexpr int numbers = 1 << 16, threads = 256;

struct Found {
  std::uint16_t pairs[numbers / 2];  // two codes
  int settled;
};

template <class T>
__global__ void every_code(float step, cuda::Range range, Found* found) {
  const cuda::HalfQuantiser<T> quantiser(step, range);
  for (unsigned i = threadIdx.x; i < numbers / 2; i += threads)
    found->pairs[i] = static_cast<std::uint16_t>(quantiser.two(2 * i | (2 * i + 1) << 16));
  if (threadIdx.x == 0) found->settled = quantiser.settled() ? 1 : 0;
}

}  // namespace

HalfCodes half_codes(Dtype dtype, float step, float lo, float hi) {
  HalfCodes result{false, std::vector<std::int8_t>(numbers)};
  Found* found = nullptr;
  if (cudaMallocManaged(&found, sizeof(Found)) != cudaSuccess) return result;
  const cuda::Range range{lo, hi};
  if (dtype == Dtype::f16)
    every_code<__half><<<1, threads>>>(step, range, found);
  else
    every_code<__nv_bfloat16><<<1, threads>>>(step, range, found);
  if (cudaDeviceSynchronize() == cudaSuccess) {
    result.settled = found->settled != 0;
    for (int i = 0; i < numbers; ++i)
      result.codes[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(found->pairs[i / 2] >> i % 2 * 8);
  }
  cudaFree(found);
  return result;
}

}  // namespace bie::kernels::test
