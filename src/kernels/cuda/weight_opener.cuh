// Codes of panels become 16-bit floats in registers, and what else a lane reads of a group.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/weight_panels.cuh"

namespace bie::kernels::cuda::weight_only {

struct Args {
  const uint4* codes;
  const char* records;
  const float* middles;
  int tiles, steps, chunks, runs, group_chunks;
  int splits, split_bits;  ///< blocks of a cluster, 2^split_bits
  int record_bytes;        ///< of one run and tile
  Offset offset;
  bool wide_scales;  ///< float32; else of 16 bits
  bool bf16_scales;
  const char* x;  ///< [rows][32 * chunks] 16-bit floats
  std::int64_t x_stride;
  int m, parts;  ///< rows = m * parts: results of the parts are added
  char* y;
  Dtype y_dtype;
  std::int64_t y_stride;
  const float* bias;
  int n;
};

/// Rows of one launch. Elsewhere than on Hopper there are no clusters, and may be less shared memory.
inline int most_rows(const Gpu& gpu) { return runs_hopper_code(gpu) ? 64 : 16; }

template <class Float>
__device__ void multiply(float (&acc)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<Float, __half>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

template <class Float>
struct Pair;
template <>
struct Pair<__half> {
  using Type = __half2;
  static constexpr unsigned magic = 0x64006400, one = 0x3c003c00;  ///< 1024 and 1 twice
  static constexpr int mantissa = 10;
  static __device__ Type of(float v) { return __float2half2_rn(v); }
};
template <>
struct Pair<__nv_bfloat16> {
  using Type = __nv_bfloat162;
  static constexpr unsigned magic = 0x43004300, one = 0x3f803f80;  ///< 128 and 1 twice
  static constexpr int mantissa = 7;
  static __device__ Type of(float v) { return __float2bfloat162_rn(v); }
};

/// Codes become q - z in two steps: bits under an exponent are base + 2^s q, s the place of the code; that times 2^-s
/// less base 2^-s + z is exact. Places 0, width, ... take a shift of their own where the mantissa ends.
template <class Float, int width>
struct Opener {
  using Type = typename Pair<Float>::Type;
  static constexpr bool bf16 = std::is_same_v<Float, __nv_bfloat16>;
  static constexpr bool by_bytes = width == 8;
  static constexpr int places = width == 8 ? 1 : bf16 ? (width == 4 ? 1 : width == 2 ? 3 : 4) : width == 4 ? 2 : 4;

  Type minus[2][places];  ///< of the lower and the upper output

  /// Zeros in the low and the high half of a word.
  __device__ void set(unsigned zeros) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned zero = half == 0 ? zeros & 0xffff : zeros >> 16;
      if constexpr (bf16 && by_bytes) {
        minus[half][0] = Pair<Float>::of(128 - static_cast<float>(zero));
      } else {
        // base 2^-s + z has the exponent of base 2^-s, and its mantissa is z from bit s on.
#pragma unroll
        for (int p = 0; p < places; ++p) {
          const int shift = width * p;
          const unsigned bits =
              (0x8000 | (Pair<Float>::magic & 0xffff)) - (shift << Pair<Float>::mantissa) + (zero << shift);
          minus[half][p] = pair_of(bits * 0x10001);
        }
      }
    }
  }

  static __device__ unsigned bits_of(Type pair) { return *reinterpret_cast<unsigned*>(&pair); }
  static __device__ Type pair_of(unsigned bits) { return *reinterpret_cast<Type*>(&bits); }

  /// Pair p = 0 ... 3 of an output's eight codes: bits & mask | magic, q - z.
  __device__ unsigned pair(const unsigned (&w)[4], int c, int half, int p) const {
    const CodePlace place = code_place(width, c, half, 2 * p);
    const unsigned word = w[place.word];
    if constexpr (by_bytes && bf16) {
      const unsigned spaced = __byte_perm(word ^ 0x80808080, 0, place.bit == 0 ? 0x4140 : 0x4342);  // signed
      const unsigned low = (spaced & 0x007f007f) | 0x43004300, high = (spaced & 0x00800080) | 0x43004300;
      return bits_of(__hadd2(__hsub2(pair_of(low), pair_of(high)), minus[half][0]));
    } else if constexpr (by_bytes) {
      const unsigned biased = __byte_perm(word, Pair<Float>::magic, place.bit == 0 ? 0x5150 : 0x5352);
      return bits_of(__hadd2(pair_of(biased), minus[half][0]));
    } else {
      constexpr unsigned mask = ((1u << width) - 1) * 0x00010001;
      const int of_run = p % places, shift = place.bit - width * of_run;
      unsigned biased;  // in one instruction
      asm("lop3.b32 %0, %1, %2, %3, 0xea;"
          : "=r"(biased)
          : "r"(word >> shift), "r"(mask << (width * of_run)), "r"(Pair<Float>::magic));
      if (of_run == 0) return bits_of(__hadd2(pair_of(biased), minus[half][0]));
      return bits_of(__hfma2(pair_of(biased), Pair<Float>::of(1.0f / (1 << (width * of_run))), minus[half][of_run]));
    }
  }

  /// The left operands of both products of chunk c of a step.
  __device__ void open(const uint4& step, int c, unsigned (&a)[2][4]) const {
    const unsigned w[4] = {step.x, step.y, step.z, step.w};
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        a[i][half] = pair(w, c, half, 2 * i);
        a[i][2 + half] = pair(w, c, half, 2 * i + 1);
      }
  }
};

/// Scales and zeros of a lane's two outputs in one group, as they lie.
struct Record {
  uint4 bits;

  static __device__ Record at(const char* from, bool wide_scales) {
    if (wide_scales) return {__ldg(reinterpret_cast<const uint4*>(from))};
    const uint2 bits = __ldg(reinterpret_cast<const uint2*>(from));
    return {{bits.x, bits.y, 0, 0}};
  }
  /// z of codes, in the halves of a word.
  __device__ unsigned zeros(const Args& p) const { return p.wide_scales ? bits.z : bits.y; }
  /// Two floats of the type of scales: those of a pair of 32 bits, or where they have 16 bits of one word.
  static __device__ void widen(const Args& p, unsigned lower, unsigned upper, float (&v)[2]) {
    if (p.wide_scales) {
      v[0] = __uint_as_float(lower);
      v[1] = __uint_as_float(upper);
    } else if (p.bf16_scales) {
      v[0] = __uint_as_float(lower << 16);
      v[1] = __uint_as_float(lower & 0xffff0000);
    } else {
      const float2 two = __half22float2(*reinterpret_cast<const __half2*>(&lower));
      v[0] = two.x;
      v[1] = two.y;
    }
  }
  __device__ void scales(const Args& p, float (&s)[2]) const { widen(p, bits.x, bits.y, s); }
  /// z of Offset::value.
  __device__ void values(const Args& p, float (&z)[2]) const { widen(p, p.wide_scales ? bits.z : bits.y, bits.w, z); }
};
__device__ inline Record record_of(const Args& p, int run, int tile, int row) {
  return Record::at(p.records + (tile * p.runs + run) * p.record_bytes + row * (p.record_bytes / 8), p.wide_scales);
}

}  // namespace bie::kernels::cuda::weight_only
