// Wrappers of sm_90 instructions: barriers in shared memory (mbarrier), copies by the tensor memory accelerator (TMA),
// and the fences and waits of warpgroup products. Addresses are 32-bit addresses of the shared window.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace bie::kernels::cuda::hopper {

__device__ inline void init_barrier(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
/// Makes initialised barriers visible to the TMA.
__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives, and lets the phase end once so many bytes have been copied too.
__device__ inline void arrive_expecting(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/// Waits for the end of the phase of that parity.
__device__ inline void wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// A box of a matrix, first byte or element x of row y, to shared memory; what lies outside of the matrix is 0.
__device__ inline void load_box(unsigned to, const CUtensorMap& map, int x, int y, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
          "r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
/// One tap of the windows of output pixels, from channel c on; the first window begins at pixel x, y of image n, the
/// tap lies right and below of that. Pixels outside the image are 0.
__device__ inline void load_window(unsigned to, const CUtensorMap& map, int c, int x, int y, int n, int right,
                                   int below, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, "
      "%5}], "
      "[%6], {%7, %8};" ::"r"(to),
      "l"(&map), "r"(c), "r"(x), "r"(y), "r"(n), "r"(barrier), "h"(static_cast<unsigned short>(right)),
      "h"(static_cast<unsigned short>(below))
      : "memory");
}
/// So many bytes that lie in a row; all are multiples of 16.
__device__ inline void load_bytes(unsigned to, const void* from, int bytes, unsigned barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
/// A box from shared memory; what lies outside of the matrix is not written.
__device__ inline void store_box(const CUtensorMap& map, int x, int y, unsigned from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x),
               "r"(y), "r"(from)
               : "memory");
}
__device__ inline void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until all but the last `pending` stores have read their shared memory.
template <int pending>
__device__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
template <int pending>
__device__ void wait_stores() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}
/// Writes of this thread to shared memory come before what the TMA reads there.
__device__ inline void before_stores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ inline void prefetch(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// A barrier of 128 threads, numbered from 1.
__device__ inline void sync_warpgroup(int number) { asm volatile("bar.sync %0, 128;" ::"r"(number) : "memory"); }
/// A barrier of the 128 threads that wait for it and the 128 that only say that they came.
__device__ inline void sync_block(int number) { asm volatile("bar.sync %0, 256;" ::"r"(number) : "memory"); }
__device__ inline void arrive_block(int number) { asm volatile("bar.arrive %0, 256;" ::"r"(number) : "memory"); }
/// Synchronises like sync_warpgroup and returns whether `mine` is true on any of its threads.
__device__ inline bool any_of_warpgroup(int number, bool mine) {
  int any;
  asm volatile("{ .reg .pred p, q; setp.ne.b32 p, %1, 0; barrier.cta.red.or.pred q, %2, 128, p; selp.b32 %0, 1, 0, q; }"
               : "=r"(any)
               : "r"(static_cast<int>(mine)), "r"(number)
               : "memory");
  return any != 0;
}

template <int registers>
__device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

/// Pins registers: the compiler must not move their computation behind the fence that products need.
template <int count>
__device__ void pin(unsigned (&registers)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}
template <int count>
__device__ void pin(int (&registers)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}
template <int steps, int count>
__device__ void pin(unsigned (&registers)[steps][count]) {
#pragma unroll
  for (int step = 0; step < steps; ++step) pin(registers[step]);
}

/// Registers that products read or add to are written before what follows.
__device__ inline void fence_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending>
__device__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

/// Rows of 128 bytes in the TMA's 128-byte swizzle, the first at a multiple of 1024 bytes: eight rows are 1024 bytes
/// apart. 2 more is 32 bytes further along the rows.
__device__ inline std::uint64_t tile_descriptor(unsigned at) {
  return (at & 0x3ffff) >> 4 | std::uint64_t{1} << 16 | std::uint64_t{1024 >> 4} << 32 | std::uint64_t{1} << 62;
}
/// Descriptor of a transposed operand (MN-major, 16-bit elements, 128-byte swizzle): a column of the tile is a row of
/// the operand. The next 64 columns are `next` bytes further. Adding 128 to the descriptor moves it down by 16 rows.
__device__ inline std::uint64_t transposed_tile_descriptor(unsigned at, unsigned next) {
  return (at & 0x3ffff) >> 4 | std::uint64_t{next >> 4} << 16 | std::uint64_t{1024 >> 4} << 32 | std::uint64_t{1} << 62;
}

/// Four 8x8 matrices of 16-bit numbers to shared memory: lane l gives the address of row l % 8 of matrix l / 8.
template <bool transposed>
__device__ void store_matrices(unsigned to, const unsigned (&r)[4]) {
  if constexpr (transposed)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(r[0]),
                 "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(r[0]), "r"(r[1]),
                 "r"(r[2]), "r"(r[3])
                 : "memory");
}

}  // namespace bie::kernels::cuda::hopper
