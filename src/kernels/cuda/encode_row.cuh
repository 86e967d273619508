// Threads turn a row of numbers into a row of codes, eight elements a thread at a time.
#pragma once

#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/fours.cuh"
#include "kernels/cuda/quantiser.cuh"

namespace bie::kernels::cuda {

/// The codes of eight elements; those that are codes already are taken as they are.
template <class R>
__device__ void codes_of(const Quantiser& quantiser, const float (&xs)[8], int (&codes)[8]) {
  if constexpr (R::quantises) {
    quantiser.codes(xs, codes);
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) codes[j] = code<R>(xs[j], 1, quantiser.range());
  }
}

__device__ inline bool all_finite(const float (&xs)[8]) {
  float zero = 0;  // stays so unless an element is NaN or infinite
#pragma unroll
  for (int j = 0; j < 8; ++j) zero = __fmaf_rn(xs[j], 0.0f, zero);
  return zero == 0;
}

/// A row to encode. `whole`: it starts at a multiple of 16 bytes, so that eight elements are read at once.
struct RowSource {
  const char* data;
  const float* bias;
  int k;
  bool whole;
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

/// Writes one group of a row of codes from its elements; returns its ones where the format is bits. Four neighbouring
/// lanes call it together with four neighbouring groups, the first a multiple of four. Elements behind the end, which a
/// `whole` group has none of, are 0.
template <class R, Format format, bool whole>
__device__ int encode_group(const RowSource& row, const Quantiser& quantiser, int group, float (&xs)[8], char* to,
                            bool* finite) {
  const int first = 8 * group;
  if (R::quantises) {
    if (row.bias != nullptr) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Four<float> bias = load_four(row.bias, first + 4 * half, row.k);
#pragma unroll
        for (int j = 0; j < 4; ++j) xs[4 * half + j] += bias.at[j];
      }
    }
    *finite = *finite && all_finite(xs);
  }
  const auto inside = [&](int j) { return whole || first + j < row.k; };
  const int lane = threadIdx.x % 32;
  const unsigned four_lanes = 0xfu << (lane & ~3);
  if constexpr (format == Format::bits) {
    unsigned bits = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) bits |= static_cast<unsigned>(xs[j] >= 0 && inside(j)) << j;
    unsigned word = bits << 8 * (lane % 4);
    word |= __shfl_xor_sync(four_lanes, word, 1);
    word |= __shfl_xor_sync(four_lanes, word, 2);
    if (lane % 4 == 0) *reinterpret_cast<unsigned*>(to + group) = word;
    return __popc(bits);
  } else {
    int codes[8];
    codes_of<R>(quantiser, xs, codes);
#pragma unroll
    for (int j = 0; j < 8; ++j) codes[j] = inside(j) ? codes[j] : 0;
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

/// Copies a chunk of bits that are packed already; returns its ones.
__device__ inline int copy_bits(const RowSource& row, int chunk, char* to) {
  const int first = 128 * chunk;
  unsigned words[4];
  if (row.whole && first + 128 <= row.k) {
    const uint4 all = __ldg(reinterpret_cast<const uint4*>(row.data) + chunk);
    words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
  } else {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      words[w] = 0;
#pragma unroll
      for (int byte = 0; byte < 4; ++byte) {
        const int i = first + 32 * w + 8 * byte;
        if (i >= row.k) continue;
        const unsigned eight = static_cast<std::uint8_t>(row.data[i / 8]);
        words[w] |= (row.k - i < 8 ? eight & ((1u << (row.k - i)) - 1) : eight) << 8 * byte;
      }
    }
  }
  reinterpret_cast<uint4*>(to)[chunk] = make_uint4(words[0], words[1], words[2], words[3]);
  return __popc(words[0]) + __popc(words[1]) + __popc(words[2]) + __popc(words[3]);
}

/// Work of thread t of the `threads` threads that write a row of codes together. `threads` is a multiple of four,
/// except for formats in which lanes work alone. Returns the ones of the groups that it wrote. Up to `most` groups are
/// loaded ahead.
template <class R, Format format, int most>
__device__ int encode_row(const RowSource& row, const Quantiser& quantiser, int t, int threads, char* to,
                          bool* finite) {
  int ones = 0;
  if constexpr (std::is_same_v<R, Reader<PackedBits>>) {
    for (int chunk = t; chunk < row_chunks(format, row.k); chunk += threads) ones += copy_bits(row, chunk, to);
    return ones;
  } else {
    constexpr int batch = sizeof(typename R::Eight) > 16 ? (most + 1) / 2 : most;
    const int groups = static_cast<int>(row_groups(format, row.k));
    const int whole_groups = row.whole ? row.k / 8 : 0;
    int group = t;
    for (; group - t + batch * threads <= whole_groups; group += batch * threads) {
      typename R::Eight eights[batch];
#pragma unroll
      for (int b = 0; b < batch; ++b) eights[b] = R::load_eight(row.data, 8 * (group + b * threads));
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        float xs[8];
        R::open(eights[b], xs);
        ones += encode_group<R, format, true>(row, quantiser, group + b * threads, xs, to, finite);
      }
    }
#pragma unroll 1
    for (; group < groups; group += threads) {
      float xs[8];
      if (group < whole_groups) {
        R::open(R::load_eight(row.data, 8 * group), xs);
      } else {
#pragma unroll
        for (int j = 0; j < 8; ++j) xs[j] = 8 * group + j < row.k ? R::get(row.data, 8 * group + j) : 0.0f;
      }
      ones += encode_group<R, format, false>(row, quantiser, group, xs, to, finite);
    }
    return ones;
  }
}

}  // namespace bie::kernels::cuda
