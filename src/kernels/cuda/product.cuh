// The products of codes. A step of any of them takes 32 bytes of an activation row, as 16x8 tiles of one warp:
// mma() on tensor cores, dot() on two words anywhere. Which elements the bytes hold is the format's business; both
// operands have the same order.
#pragma once

#include <cstdint>

#include "kernels/cuda/codes.cuh"

namespace bie::kernels::cuda {

__device__ inline int ones_of(const uint4& chunk) {
  return __popc(chunk.x) + __popc(chunk.y) + __popc(chunk.z) + __popc(chunk.w);
}

/// Whether a product on such rows has to count their ones.
template <class Product, class Source>
constexpr bool counts_rows = Product::counts && !Source::counted;

/// Signs: ones in common. XOR is emulated on sm_90 and AND is not, and popc(a ^ w) = popc(a) + popc(w) - 2 popc(a & w).
struct B1 {
  static constexpr Format a_format = Format::bits, b_format = Format::bits;
  static constexpr int b_step = 32;  ///< bytes of a panel row that meet 32 bytes of an activation row
  static constexpr bool counts = true;
  static __device__ int dot(unsigned a, unsigned b, int acc) { return acc + __popc(a & b); }
  static __device__ void mma(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
  }
  /// The sum of +-1 products from the ones in common and the ones of each.
  static __device__ int finish(int acc, int k, int a_ones, int b_ones) { return k - 2 * (a_ones + b_ones) + 4 * acc; }
};

struct S8 {
  static constexpr Format a_format = Format::bytes, b_format = Format::bytes;
  static constexpr int b_step = 32;
  static constexpr bool counts = false;
  static __device__ int dot(unsigned a, unsigned b, int acc) {
    return __dp4a(static_cast<int>(a), static_cast<int>(b), acc);
  }
  static __device__ void mma(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
  }
  static __device__ int finish(int acc, int, int, int) { return acc; }
};

/// 4-bit codes as bytes against nibbles that two masks turn into 16 times the code; the sum is divided once.
struct S4 : S8 {
  static constexpr Format a_format = Format::wide, b_format = Format::nibbles;
  static constexpr int b_step = 16;
  static __device__ void widen_word(unsigned word, unsigned (&b)[2]) {
    b[0] = (word << 4) & 0xf0f0f0f0u;
    b[1] = word & 0xf0f0f0f0u;
  }
  static __device__ int finish(int acc, int, int, int) { return acc >> 4; }
};

/// 4-bit codes on the 4-bit tensor cores that sm_80, 86 and 89 have and sm_90 emulates.
struct S4Native {
  static constexpr Format a_format = Format::nibbles, b_format = Format::nibbles;
  static constexpr int b_step = 32;
  static constexpr bool counts = false;
  static __device__ void mma(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
  }
  static __device__ int finish(int acc, int, int, int) { return acc; }
};

}  // namespace bie::kernels::cuda
