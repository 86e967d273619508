// Roofline of one GPU: the rates of the instructions that the kernels multiply with, of its memory and its cache, and
// the time of a launch that does nothing. Operands are data, not zeros, because those take less power. wgmma rates are
// for sm_90 alone.
//
// bie_cuda_roofline: a JSON object; TOPS (multiplications and additions), GB/s, microseconds.
#include "bench/cuda_timing.h"
#include "bie/kernels/cuda/device.h"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace bie::bench {

using namespace bie::kernels;
using namespace bie::kernels::cuda;

constexpr int warpgroups = 2, rounds = 2000, steps = 4;  // products under way, and at once
constexpr int shared_bytes = (warpgroups * 64 + 256) * 128 + 1024;

/// Bytes that hold numbers of every kind, none of them NaN as bfloat16.
__device__ inline void fill(char* shared) {
  unsigned state = threadIdx.x * 2654435761u + 1;
  for (int i = threadIdx.x; i < shared_bytes / 4; i += blockDim.x) {
    state = state * 1664525u + 1013904223u;
    reinterpret_cast<unsigned*>(shared)[i] = (state >> 8 | state << 24) & 0xbfffbfffu;
  }
  hopper::before_stores();
  __syncthreads();
}

struct WgmmaB1 {
  static constexpr const char* name = "wgmma b1 and.popc";
  static constexpr int depth = 256;
  using Number = int;
  static __device__ void multiply(int (&acc)[128], std::uint64_t left, std::uint64_t right) {
    wgmma_b1(acc, left, right, 1);
  }
};
struct WgmmaS8 {
  static constexpr const char* name = "wgmma s8";
  static constexpr int depth = 32;
  using Number = int;
  static __device__ void multiply(int (&acc)[128], std::uint64_t left, std::uint64_t right) {
    wgmma_s8(acc, left, right, 1);
  }
};
struct WgmmaBf16 {
  static constexpr const char* name = "wgmma bf16, left operand in registers";
  static constexpr int depth = 16;
  using Number = float;
  static __device__ void multiply(float (&acc)[128], std::uint64_t left, std::uint64_t right) {
    const auto word = static_cast<unsigned>(left);
    const unsigned registers[4] = {0x3f803f80u, 0xbf803f80u, 0x3f80bf80u, 0x3f80bf80u ^ (word & 0x80u)};
    wgmma_bf16<false>(acc, registers, right, 1);
  }
};

template <class Product>
__global__ void __launch_bounds__(128 * warpgroups, 1) wgmma_rate(float* out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) char shared[];
  fill(shared);
  const auto base = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const std::uint64_t right = hopper::tile_descriptor(base),
                      left = hopper::tile_descriptor(base + 256 * 128 + threadIdx.x / 128 * 64 * 128);
  typename Product::Number acc[128] = {};
  for (int round = 0; round < rounds; ++round) {
    hopper::fence_products();
#pragma unroll
    for (int step = 0; step < steps; ++step) Product::multiply(acc, left + 2 * step, right + 2 * step);
    hopper::commit_products();
    hopper::wait_products<0>();
  }
  float sum = 0;
  for (const auto value : acc) sum += static_cast<float>(value);
  if (sum == 1.5f) *out = sum;  // never, and nobody knows
#endif
}

template <class Product>
__global__ void __launch_bounds__(256) mma_rate(float* out) {
  constexpr int tiles = 8;
  unsigned a[4], b[2];
  for (int i = 0; i < 4; ++i) a[i] = (threadIdx.x + 7 * i) * 2654435761u;
  for (int i = 0; i < 2; ++i) b[i] = (threadIdx.x + 5 * i) * 1013904223u;
  int acc[tiles][4] = {};
  for (int round = 0; round < rounds; ++round)
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) Product::mma(acc[tile], a, b);
  int sum = 0;
  for (const auto& tile : acc) sum += tile[0] + tile[1] + tile[2] + tile[3];
  if (sum == 12345) *out = 1;
}

__global__ void __launch_bounds__(512) read_all(const uint4* data, std::int64_t count, int passes, float* out) {
  unsigned sum = 0;
  const std::int64_t stride = std::int64_t{512} * gridDim.x;
  for (int pass = 0; pass < passes; ++pass) {
#pragma unroll 8
    for (std::int64_t i = std::int64_t{blockIdx.x} * 512 + threadIdx.x; i < count; i += stride) {
      const uint4 chunk = __ldcg(data + i);
      sum += chunk.x ^ chunk.y ^ chunk.z ^ chunk.w;
    }
  }
  if (sum == 12345) *out = 1;
}
__global__ void __launch_bounds__(512) copy_all(const uint4* from, uint4* to, std::int64_t count) {
  const std::int64_t stride = std::int64_t{512} * gridDim.x;
#pragma unroll 4
  for (std::int64_t i = std::int64_t{blockIdx.x} * 512 + threadIdx.x; i < count; i += stride) to[i] = from[i];
}
__global__ void nothing() {}

inline void print(const char* name, double value, const char* end = ",") {
  std::printf("  \"%s\": %.1f%s\n", name, value, end);
}

}  // namespace bie::bench

int main() {
  using namespace bie::bench;
  const Gpu* gpu = nullptr;
  const Status status = bie::kernels::cuda::gpu(0, &gpu);
  if (status != Status::ok) {
    std::fprintf(stderr, "%s\n", describe(status));
    return 1;
  }
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  const Filled out(4, 0);
  float* const result = reinterpret_cast<float*>(out.get());
  const auto time = [&](int calls, const auto& call) {
    return time_calls(calls, stream, [&](int) {
      call();
      check(cudaGetLastError());
    });
  };
  std::printf("{\n  \"device\": \"%s\",\n", gpu->name);
  const auto wgmma = [&](auto product) {
    using Product = decltype(product);
    check(cudaFuncSetAttribute(wgmma_rate<Product>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
    const double us =
        time(5, [&] { wgmma_rate<Product><<<gpu->multiprocessors, 128 * warpgroups, shared_bytes, stream>>>(result); });
    print(Product::name,
          2.0 * 64 * 256 * Product::depth * steps * rounds * warpgroups * gpu->multiprocessors / us / 1e6);
  };
  if (gpu->sm == 90) {
    wgmma(WgmmaB1{});
    wgmma(WgmmaS8{});
    wgmma(WgmmaBf16{});
  }
  if (gpu->sm >= 80) {
    const auto mma = [&](const char* name, auto product, int depth) {
      using Product = decltype(product);
      constexpr int warps = 16;  // a multiprocessor
      const double us =
          time(5, [&] { mma_rate<Product><<<gpu->multiprocessors * warps / 8, 256, 0, stream>>>(result); });
      print(name, 2.0 * 16 * 8 * depth * 8 * rounds * warps * gpu->multiprocessors / us / 1e6);
    };
    mma("mma.sync b1 and.popc", B1{}, 256);
    mma("mma.sync s8", S8{}, 32);
  }
  const auto read = [&](const char* name, std::int64_t bytes, int passes) {
    const Filled data(bytes, ~0u);
    const double us = time(5, [&] {
      read_all<<<gpu->multiprocessors * 4, 512, 0, stream>>>(reinterpret_cast<const uint4*>(data.get()), bytes / 16,
                                                             passes, result);
    });
    print(name, static_cast<double>(bytes) * passes / us / 1e3);
  };
  read("reading memory", std::int64_t{1} << 30, 1);
  read("reading what is in the L2", std::int64_t{16} << 20, 50);
  {
    const std::int64_t bytes = std::int64_t{1} << 29;
    const Filled from(bytes, ~0u), to(bytes, 0);
    const double us = time(5, [&] {
      copy_all<<<gpu->multiprocessors * 4, 512, 0, stream>>>(reinterpret_cast<const uint4*>(from.get()),
                                                             reinterpret_cast<uint4*>(to.get()), bytes / 16);
    });
    print("copying memory, read and written", 2.0 * static_cast<double>(bytes) / us / 1e3);
  }
  print("an empty launch", time(200, [&] { nothing<<<gpu->multiprocessors, 256, 0, stream>>>(); }), "");
  std::printf("}\n");
}
