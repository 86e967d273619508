// Passes over dense arrays, four elements a thread and turn.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace bie::kernels::cuda {

template <class T>
struct alignas(4 * sizeof(T)) Four {
  T at[4];
};

template <class T>
__device__ inline bool in_one_piece(const T* data, std::int64_t first, std::int64_t count) {
  return first + 4 <= count && reinterpret_cast<std::uintptr_t>(data) % sizeof(Four<T>) == 0;
}

/// Elements first ... first + 3 of `count`; `first` is a multiple of 4. What lies behind the end is not read.
template <class T>
__device__ inline Four<T> load_four(const T* from, std::int64_t first, std::int64_t count) {
  if (in_one_piece(from, first, count)) return *reinterpret_cast<const Four<T>*>(from + first);
  Four<T> four{};
#pragma unroll
  for (int j = 0; j < 4; ++j)
    if (first + j < count) four.at[j] = from[first + j];
  return four;
}

template <class T>
__device__ inline void store_four(T* to, std::int64_t first, std::int64_t count, const Four<T>& four) {
  if (in_one_piece(to, first, count)) {
    *reinterpret_cast<Four<T>*>(to + first) = four;
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j)
    if (first + j < count) to[first + j] = four.at[j];
}

constexpr int pass_threads = 256;

template <class Body>
__global__ void __launch_bounds__(pass_threads) pass(std::int64_t count, const Body body) {
  const std::int64_t stride = std::int64_t{4} * pass_threads * gridDim.x;
  std::int64_t first = 4 * (std::int64_t{blockIdx.x} * pass_threads + threadIdx.x);
  for (; first < count; first += stride) body(first, count);
}

/// body(first, count) for every fourth element: a struct of pointers with a __device__ operator().
template <class Body>
Status for_fours(std::int64_t count, const Body& body, const Queue& queue) {
  return launch(pass<Body>, blocks_for((count + 3) / 4, pass_threads), pass_threads, 0, queue, count, body);
}

}  // namespace bie::kernels::cuda
