// Threads turn a row of numbers into a row of codes, eight elements a thread at a time.
#pragma once

#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/fours.cuh"

namespace bie::kernels::cuda {

/// A row to encode. `whole`: it starts at a multiple of 16 bytes, so that eight elements are read at once.
struct RowSource {
  const char* data;
  const float* bias;
  int k;
  bool whole;
  float step;
  Range range;
};

/// Groups of eight elements, those behind the end that pad the last chunk included.
constexpr std::int64_t row_groups(Format format, std::int64_t k) {
  const std::int64_t chunks = row_chunks(format, k);
  switch (format) {
    case Format::bits: return 16 * chunks;
    case Format::nibbles: return 4 * chunks;
    default: return 2 * chunks;
  }
}

/// Elements first ... first + 7 as xs, or as the codes they are; 0 behind the last one.
template <class R>
__device__ void read_eight(const RowSource& row, int first, float (&xs)[8], bool* finite) {
  if (row.whole && first + 8 <= row.k) {
    R::get_eight(row.data, first, xs);
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) xs[j] = first + j < row.k ? R::get(row.data, first + j) : 0.0f;
  }
  if (!R::quantises) return;
  if (row.bias != nullptr) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Four<float> bias = load_four(row.bias, first + 4 * half, row.k);
#pragma unroll
      for (int j = 0; j < 4; ++j) xs[4 * half + j] += bias.at[j];
    }
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) *finite = *finite && isfinite(xs[j]);
}

/// Writes one group of a row of codes; returns its ones where the format is bits. Four neighbouring lanes come together
/// with four neighbouring groups, the first a multiple of four.
template <class R, Format format>
__device__ int encode_group(const RowSource& row, int group, char* to, bool* finite) {
  const int first = 8 * group;
  float xs[8];
  read_eight<R>(row, first, xs, finite);
  const int lane = threadIdx.x % 32;
  const unsigned four_lanes = 0xfu << (lane & ~3);
  if constexpr (format == Format::bits) {
    unsigned bits = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) bits |= static_cast<unsigned>(xs[j] >= 0 && first + j < row.k) << j;
    unsigned word = bits << 8 * (lane % 4);
    word |= __shfl_xor_sync(four_lanes, word, 1);
    word |= __shfl_xor_sync(four_lanes, word, 2);
    if (lane % 4 == 0) *reinterpret_cast<unsigned*>(to + group) = word;
    return __popc(bits);
  } else {
    int codes[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) codes[j] = first + j < row.k ? code<R>(xs[j], row.step, row.range) : 0;
    if constexpr (format == Format::nibbles) {
      // Word t of a chunk holds elements 4t ... 4t+3 low and 16 further on high; a lane has elements 8t ... 8t+7.
      unsigned packed = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) packed |= (codes[j] & 15u) << 4 * j;
      const int t = lane % 4, from = (lane & ~3) + t / 2;
      const auto spread = [&](unsigned eight) {
        const unsigned four = t % 2 == 0 ? eight & 0xffff : eight >> 16;
        return (four & 0xf) | (four & 0xf0) << 4 | (four & 0xf00) << 8 | (four & 0xf000) << 12;
      };
      const unsigned low = __shfl_sync(four_lanes, packed, from), high = __shfl_sync(four_lanes, packed, from + 2);
      *reinterpret_cast<unsigned*>(to + 4 * group) = spread(low) | spread(high) << 4;
    } else {
      const int front[4] = {codes[0], codes[1], codes[2], codes[3]}, back[4] = {codes[4], codes[5], codes[6], codes[7]};
      *reinterpret_cast<uint2*>(to + first) = make_uint2(pack_bytes(front), pack_bytes(back));
    }
    return 0;
  }
}

}  // namespace bie::kernels::cuda
