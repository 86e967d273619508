// Passes over dense arrays, four elements a thread and turn.
#pragma once

#include <cstdint>

#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/launch.cuh"

namespace bie::kernels::cuda {

template <class T>
struct alignas(4 * sizeof(T)) Four {
  T at[4];
};
template <class T>
__device__ inline Four<T> narrow_four(const Four<float>& four) {
  const Two<T> low = narrow_two<T>({four.at[0], four.at[1]}), high = narrow_two<T>({four.at[2], four.at[3]});
  return {low.at[0], low.at[1], high.at[0], high.at[1]};
}

/// The first `valid` (4 at most count) of four elements, the others 0; `aligned`: four begin on a boundary of four.
template <class T>
__device__ inline Four<T> load_some(const T* from, bool aligned, std::int64_t valid) {
  if (aligned && valid >= 4) return *reinterpret_cast<const Four<T>*>(from);
  Four<T> four{};
#pragma unroll
  for (int j = 0; j < 4; ++j)
    if (j < valid) four.at[j] = from[j];
  return four;
}

template <class T>
__device__ inline void store_some(T* to, bool aligned, std::int64_t valid, const Four<T>& four) {
  if (aligned && valid >= 4) {
    *reinterpret_cast<Four<T>*>(to) = four;
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j)
    if (j < valid) to[j] = four.at[j];
}

template <class T>
__host__ __device__ inline bool begins_on_four(const T* data) {
  return reinterpret_cast<std::uintptr_t>(data) % sizeof(Four<T>) == 0;
}

/// Elements first ... first + 3 of `count`; `first` is a multiple of 4. Elements behind the end are not read.
template <class T>
__device__ inline Four<T> load_four(const T* from, std::int64_t first, std::int64_t count) {
  return load_some(from + first, begins_on_four(from), count - first);
}

template <class T>
__device__ inline void store_four(T* to, std::int64_t first, std::int64_t count, const Four<T>& four) {
  store_some(to + first, begins_on_four(to), count - first, four);
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
