// Hopper's warpgroup products (wgmma): 64 rows against n rows, 32 bytes of each, accumulated in registers. The left
// operand lies in shared memory or in registers, the right one in shared memory. PTX ISA, "Asynchronous Warpgroup Level
// Matrix Multiply-Accumulate Instructions".
#pragma once

#include <cstdint>

namespace bie::kernels::cuda {

// Operands are numbered in the text of an instruction, so every width needs its own: BIE_D16 lists the first sixteen,
// BIE_C16(i) binds sixteen accumulators from c[i] on, BIE_F16(i) such of floats.
#define BIE_D8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define BIE_D16 BIE_D8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define BIE_D32 \
  BIE_D16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define BIE_D64                                                                      \
  BIE_D32                                                                            \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define BIE_D128                                                                                 \
  BIE_D64                                                                                        \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"             \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"             \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define BIE_C4(i) "+r"(c[i]), "+r"(c[i + 1]), "+r"(c[i + 2]), "+r"(c[i + 3])
#define BIE_C8(i) BIE_C4(i), BIE_C4(i + 4)
#define BIE_C16(i) BIE_C8(i), BIE_C8(i + 8)
#define BIE_C32(i) BIE_C16(i), BIE_C16(i + 16)
#define BIE_C64(i) BIE_C32(i), BIE_C32(i + 32)
#define BIE_C128(i) BIE_C64(i), BIE_C64(i + 64)
#define BIE_F4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define BIE_F8(i) BIE_F4(i), BIE_F4(i + 4)
#define BIE_F16(i) BIE_F8(i), BIE_F8(i + 8)
#define BIE_F32(i) BIE_F16(i), BIE_F16(i + 16)
#define BIE_F64(i) BIE_F32(i), BIE_F32(i + 32)
#define BIE_F128(i) BIE_F64(i), BIE_F64(i + 64)

// `keep` 0 starts from zero. left and right are descriptors of tiles in shared memory (hopper.cuh).
#define BIE_WGMMA(name, n, registers, type, left_at, right_at, keep_at)                                       \
  __device__ inline void name(int(&c)[registers], std::uint64_t left, std::uint64_t right, int keep) {        \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #keep_at ", 0; wgmma.mma_async.sync.aligned.m64n" #n type \
                 " {" BIE_D##registers "}, %" #left_at ", %" #right_at ", p; }"                               \
                 : BIE_C##registers(0)                                                                        \
                 : "l"(left), "l"(right), "r"(keep));                                                         \
  }
#define BIE_WGMMA_REGISTERS(name, n, registers, type, a0, a1, a2, a3, right_at, keep_at)                      \
  __device__ inline void name(int(&c)[registers], const unsigned(&left)[4], std::uint64_t right, int keep) {  \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #keep_at ", 0; wgmma.mma_async.sync.aligned.m64n" #n type \
                 " {" BIE_D##registers "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #right_at ", p; }"    \
                 : BIE_C##registers(0)                                                                        \
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(keep));            \
  }
// Floats of 16 bits. The right operand's rows lie in shared memory with the depth contiguous, or `transposed`.
#define BIE_WGMMA_FLOATS(name, n, registers, type, a0, a1, a2, a3, right_at, keep_at, transposed_at)          \
  template <bool transposed>                                                                                  \
  __device__ void name(float(&c)[registers], const unsigned(&left)[4], std::uint64_t right, int keep) {       \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #keep_at ", 0; wgmma.mma_async.sync.aligned.m64n" #n type \
                 " {" BIE_D##registers "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #right_at             \
                                       ", p, 1, 1, %" #transposed_at "; }"                                    \
                 : BIE_F##registers(0)                                                                        \
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(keep),             \
                   "n"(int{transposed}));                                                                     \
  }

BIE_WGMMA(wgmma_b1, 256, 128, "k256.s32.b1.b1.and.popc", 128, 129, 130)
BIE_WGMMA(wgmma_b1, 128, 64, "k256.s32.b1.b1.and.popc", 64, 65, 66)
BIE_WGMMA(wgmma_b1, 64, 32, "k256.s32.b1.b1.and.popc", 32, 33, 34)
BIE_WGMMA(wgmma_b1, 32, 16, "k256.s32.b1.b1.and.popc", 16, 17, 18)
BIE_WGMMA(wgmma_b1, 16, 8, "k256.s32.b1.b1.and.popc", 8, 9, 10)
BIE_WGMMA(wgmma_s8, 256, 128, "k32.s32.s8.s8", 128, 129, 130)
BIE_WGMMA(wgmma_s8, 128, 64, "k32.s32.s8.s8", 64, 65, 66)
BIE_WGMMA(wgmma_s8, 64, 32, "k32.s32.s8.s8", 32, 33, 34)
BIE_WGMMA(wgmma_s8, 32, 16, "k32.s32.s8.s8", 16, 17, 18)
BIE_WGMMA(wgmma_s8, 16, 8, "k32.s32.s8.s8", 8, 9, 10)
BIE_WGMMA_REGISTERS(wgmma_b1, 256, 128, "k256.s32.b1.b1.and.popc", 128, 129, 130, 131, 132, 133)
BIE_WGMMA_REGISTERS(wgmma_b1, 128, 64, "k256.s32.b1.b1.and.popc", 64, 65, 66, 67, 68, 69)
BIE_WGMMA_REGISTERS(wgmma_b1, 64, 32, "k256.s32.b1.b1.and.popc", 32, 33, 34, 35, 36, 37)
BIE_WGMMA_REGISTERS(wgmma_s8, 256, 128, "k32.s32.s8.s8", 128, 129, 130, 131, 132, 133)
BIE_WGMMA_REGISTERS(wgmma_s8, 128, 64, "k32.s32.s8.s8", 64, 65, 66, 67, 68, 69)
BIE_WGMMA_REGISTERS(wgmma_s8, 64, 32, "k32.s32.s8.s8", 32, 33, 34, 35, 36, 37)
BIE_WGMMA_REGISTERS(wgmma_s8, 32, 16, "k32.s32.s8.s8", 16, 17, 18, 19, 20, 21)
BIE_WGMMA_REGISTERS(wgmma_s8, 16, 8, "k32.s32.s8.s8", 8, 9, 10, 11, 12, 13)
BIE_WGMMA_REGISTERS(wgmma_u8s8, 128, 64, "k32.s32.u8.s8", 64, 65, 66, 67, 68, 69)
BIE_WGMMA_REGISTERS(wgmma_u8s8, 64, 32, "k32.s32.u8.s8", 32, 33, 34, 35, 36, 37)
BIE_WGMMA_FLOATS(wgmma_bf16, 256, 128, "k16.f32.bf16.bf16", 128, 129, 130, 131, 132, 133, 134)
BIE_WGMMA_FLOATS(wgmma_bf16, 128, 64, "k16.f32.bf16.bf16", 64, 65, 66, 67, 68, 69, 70)
BIE_WGMMA_FLOATS(wgmma_bf16, 64, 32, "k16.f32.bf16.bf16", 32, 33, 34, 35, 36, 37, 38)
BIE_WGMMA_FLOATS(wgmma_f16, 256, 128, "k16.f32.f16.f16", 128, 129, 130, 131, 132, 133, 134)
BIE_WGMMA_FLOATS(wgmma_f16, 128, 64, "k16.f32.f16.f16", 64, 65, 66, 67, 68, 69, 70)
BIE_WGMMA_FLOATS(wgmma_f16, 64, 32, "k16.f32.f16.f16", 32, 33, 34, 35, 36, 37, 38)

#undef BIE_D8
#undef BIE_D16
#undef BIE_D32
#undef BIE_D64
#undef BIE_D128
#undef BIE_C4
#undef BIE_C8
#undef BIE_C16
#undef BIE_C32
#undef BIE_C64
#undef BIE_C128
#undef BIE_F4
#undef BIE_F8
#undef BIE_F16
#undef BIE_F32
#undef BIE_F64
#undef BIE_F128
#undef BIE_WGMMA
#undef BIE_WGMMA_REGISTERS
#undef BIE_WGMMA_FLOATS

}  // namespace bie::kernels::cuda
