// Helpers of the CUDA benches: memory full of data, and the time of a call on the device.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace bie::bench {

inline void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

/// Device memory full of numbers of every kind; zeros would be faster than data.
class Filled {
 public:
  Filled(std::int64_t bytes, unsigned mask) {
    std::vector<unsigned> words(static_cast<std::size_t>((bytes + 3) / 4));
    unsigned state = 1;
    for (unsigned& word : words) {
      state = state * 1664525u + 1013904223u;
      word = (state >> 8 | state << 24) & mask;
    }
    check(cudaMalloc(&data_, words.size() * 4));
    check(cudaMemcpy(data_, words.data(), words.size() * 4, cudaMemcpyHostToDevice));
  }
  Filled(const Filled&) = delete;
  ~Filled() { cudaFree(data_); }
  char* get() const { return static_cast<char*>(data_); }

 private:
  void* data_ = nullptr;
};

/// Median microseconds of one of `calls` that a graph replays.
template <class Call>
double time_calls(int calls, cudaStream_t stream, const Call& call) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < calls; ++i) call(i);
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&replay, graph, 0));
  cudaEvent_t start, stop;
  check(cudaEventCreate(&start));
  check(cudaEventCreate(&stop));
  std::vector<float> times;
  for (int i = 0; i < 8; ++i) {
    check(cudaEventRecord(start, stream));
    check(cudaGraphLaunch(replay, stream));
    check(cudaEventRecord(stop, stream));
    check(cudaEventSynchronize(stop));
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, stop));
    if (i > 0) times.push_back(ms);
  }
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
  std::nth_element(times.begin(), times.begin() + 3, times.end());
  return 1000.0 * times[3] / calls;
}

}  // namespace bie::bench
