// Parts shared by the many-row weight-only products on Hopper (sm_90a). The weight is the left operand of warpgroup
// products, dequantized in registers. The activation is the right operand, in shared memory, where one warp keeps a
// ring of stages filled by the TMA. Each lane copies the codes that it dequantizes through a ring of its own. Results
// are written to memory by way of shared memory.
#pragma once

#include <algorithm>

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/fours.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/weight_only_put.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace bie::kernels::cuda::weight_only::wide {

constexpr int steps = 4;           ///< products of a stage
constexpr int code_slots = 8;      ///< 16-byte pieces of codes of a lane that are under way
constexpr int group_outputs = 64;  ///< per warpgroup

/// How the warpgroups of a block split the work: by depth (split-K, partial sums are added at the end) or by outputs.
enum class Shared : char { depth, outputs };

/// Rows of a tile, chunks of a stage, which are 128 bytes of a row, and what else of a stage the TMA brings.
template <int width_, int rows_, int warpgroups_, Shared shared_, int stage_chunks_, int scale_bytes_>
struct Stages {
  static constexpr int width = width_, rows = rows_, warpgroups = warpgroups_, stage_chunks = stage_chunks_;
  static constexpr Shared shared = shared_;
  static constexpr int parts = shared == Shared::depth ? warpgroups : 1;  ///< of the depth
  static constexpr int outputs = shared == Shared::depth ? group_outputs : group_outputs * warpgroups;
  static constexpr int threads = 128 * (warpgroups + 1), readers = shared == Shared::depth ? 4 : 4 * warpgroups;
  static constexpr int row_bytes = rows * 128, stage_bytes = row_bytes + scale_bytes_;
  static constexpr int code_bytes = warpgroups * 4 * code_slots * step_bytes;
  /// A multiple of the parts, so that a place belongs to one of them: a barrier's parity says nothing to a part that is
  /// a phase ahead, which it can be where copies overtake one another.
  static constexpr int stages = std::min(4 * warpgroups, (226 * 1024 - code_bytes) / stage_bytes) / parts * parts;
  static constexpr int codes_at = stages * stage_bytes, barriers_at = codes_at + code_bytes;
  static constexpr int bytes = barriers_at + 16 * stages;
  static constexpr int sum_stride = group_outputs + 4;  ///< floats from one row of sums to the next
  static_assert(stage_bytes % 1024 == 0 && stages >= 2 && warpgroups * rows * sum_stride * 4 <= codes_at);
  /// Stages that one step of codes covers, or steps of a stage.
  static constexpr int span = std::max(1, step_chunks(width) / stage_chunks);
  static constexpr int pieces = std::max(1, stage_chunks / step_chunks(width));
  static constexpr int ahead = code_slots / pieces;  ///< spans

  /// The producer gives registers to the consumers.
  static constexpr int kept_registers = warpgroups == 2 ? 40 : 32;
  static constexpr int taken_registers = warpgroups == 2 ? 232 : warpgroups == 3 ? 160 : 112;
};

template <class S>
class BlockOfStages {
 protected:
  __device__ BlockOfStages(const Args& p, int row_tiles, char* shared) : p_(p), shared_(shared) {
    base_ = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    first_row_ = static_cast<int>(blockIdx.x) % row_tiles * S::rows;
    first_tile_ = static_cast<int>(blockIdx.x) / row_tiles * (S::outputs / tile_outputs);
    constexpr int together = S::stage_chunks * S::span * S::parts;  // chunks; the last stages may have none
    stages_ = (p_.chunks + together - 1) / together * S::span;
    group_ = static_cast<int>(threadIdx.x) / 128 - 1;
    lane_ = threadIdx.x % 32;
    warp_ = threadIdx.x % 128 / 32;
    part_ = S::shared == Shared::depth ? group_ : 0;
    tile_ = first_tile_ + warp_ + (S::shared == Shared::depth ? 0 : 4 * group_);
    place_ = part_;
    parity_ = 0;
    if (threadIdx.x == 0) {
      for (int i = 0; i < S::stages; ++i) {
        hopper::init_barrier(full(i), 1);
        hopper::init_barrier(empty(i), S::readers);  // a lane of each warp that reads it
      }
      hopper::publish_barriers();
    }
    __syncthreads();
  }

  /// One thread keeps the ring full, for all parts of the depth in turns. `scales` provides the rest of a part's next
  /// stage: bytes(part), load(part, to, barrier), and pass(part) to the one behind it.
  template <class Scales>
  __device__ void produce(const CUtensorMap& x, Scales&& scales) {
    hopper::prefetch(x);
    wait_for_previous_kernel();
    int place = 0;
    unsigned parity = 1;
    for (int i = 0; i < stages_; ++i)
#pragma unroll
      for (int part = 0; part < S::parts; ++part) {
        hopper::wait(empty(place), parity);
        hopper::arrive_expecting(full(place), S::row_bytes + scales.bytes(part));
        const int stage = part * stages_ + i;
        hopper::load_box(stage_at(place), x, stage * S::stage_chunks * chunk_slots, first_row_, full(place));
        scales.load(part, stage_at(place) + S::row_bytes, full(place));
        scales.pass(part);
        if (++place == S::stages) {
          place = 0;
          parity ^= 1;
        }
      }
  }

  /// Starts loading codes from the first stage of the part on.
  __device__ void begin_codes() {
    opened_ = 0;
    const int first_step = part_ * stages_ * S::pieces / S::span;
    own_codes_ = base_ + S::codes_at + ((group_ * 4 + warp_) * code_slots * 32 + lane_) * 16;
    asked_at_ = opened_at_ = own_codes_;
    codes_ = p_.codes + (std::int64_t{min(tile_, p_.tiles - 1)} * p_.steps + first_step) * 32 + lane_;
    pieces_left_ = min(p_.steps - first_step, stages_ * S::pieces / S::span);
#pragma unroll
    for (int i = 0; i < S::ahead - 1; ++i) ask();
  }
  __device__ void ask() {
#pragma unroll
    for (int i = 0; i < S::pieces; ++i)
      if (i < pieces_left_) copy_chunk(asked_at_ + i * step_bytes, codes_ + 32 * i, true);
    codes_ += 32 * S::pieces;
    pieces_left_ -= S::pieces;
    asked_at_ = behind(asked_at_);
    commit_copies();
  }
  /// The place of the next span.
  __device__ unsigned behind(unsigned at) const {
    constexpr unsigned span_bytes = S::pieces * step_bytes;
    return at == own_codes_ + (S::ahead - 1) * span_bytes ? own_codes_ : at + span_bytes;
  }
  /// open_chunk(constant c) for every chunk c of the next stage, numbered within its span.
  template <class Open>
  __device__ void open_stage(const Open& open_chunk) {
    const int of_span = opened_ % S::span;
    if (of_span == 0) {
      ask();
      wait_copies<S::ahead - 1>();
#pragma unroll
      for (int i = 0; i < S::pieces; ++i) step_[i] = load_chunk(opened_at_ + i * step_bytes);
      opened_at_ = behind(opened_at_);
    }
#pragma unroll
    for (int s = 0; s < S::span; ++s)
      if (of_span == s)
#pragma unroll
        for (int c = 0; c < S::stage_chunks; ++c) open_chunk(s * S::stage_chunks + c);
    ++opened_;
  }

  /// Where the scales of a run begin, for the lane.
  __device__ const char* record_at(int run) const {
    return p_.records + (std::int64_t{min(tile_, p_.tiles - 1)} * p_.runs + run) * p_.record_bytes +
           lane_ / 4 * (p_.record_bytes / 8);
  }
  /// Prefetches the scales of the part's runs from the first one on.
  __device__ void prefetch_records(const char* first, int run) const {
    const int bytes = min((part_ + 1) * stages_ * S::stage_chunks / p_.group_chunks + 1, p_.runs) - run;
    for (int i = lane_ % 4 * 128; i < bytes * p_.record_bytes; i += 512) prefetch(first + i);
  }
  __device__ float middle(int run) const { return p_.offset == Offset::value ? __ldg(p_.middles + run) : 0; }

  /// Waits for the warpgroup's next stage; returns its place in the ring.
  __device__ int wait_for_stage() const {
    hopper::wait(full(place_), parity_);
    return place_;
  }
  /// Tells the producer that the stage may be filled again.
  __device__ void release_stage() {
    if (lane_ == 0) hopper::arrive(empty(place_));
    place_ += S::parts;
    if (place_ >= S::stages) {
      place_ -= S::stages;
      parity_ ^= 1;
    }
  }
  __device__ unsigned stage_at(int place) const { return base_ + place * S::stage_bytes; }

  /// Called by all consumers, once no warp reads the rings any more.
  __device__ void put(const float (&sum)[S::rows / 2]) {
    wait_copies<0>();
    sync_consumers();
    float* const sums = reinterpret_cast<float*>(shared_) + group_ * S::rows * S::sum_stride;
#pragma unroll
    for (int j = 0; j < S::rows / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          sums[(8 * j + lane_ % 4 * 2 + e) * S::sum_stride + 16 * warp_ + lane_ / 4 + 8 * half] =
              sum[4 * j + 2 * half + e];
    sync_consumers();
    write();
  }

  const Args& p_;
  char* const shared_;
  unsigned base_;
  int first_row_, first_tile_, stages_;  ///< stages_: of a part of the depth
  int group_, part_, lane_, warp_, tile_;
  uint4 step_[S::pieces];

 private:
  __device__ unsigned full(int stage) const { return base_ + S::barriers_at + 8 * stage; }
  __device__ unsigned empty(int stage) const { return full(S::stages + stage); }
  static __device__ void sync_consumers() { asm volatile("bar.sync 1, %0;" ::"n"(128 * S::warpgroups) : "memory"); }

  /// Writes the sums, added over the parts of the depth, to the result: eight neighbours per thread.
  __device__ void write() const {
    constexpr int threads = 128 * S::warpgroups, eights = S::outputs / 8;
    const int thread = static_cast<int>(threadIdx.x) - 128, output = thread % eights * 8;
    const int column = first_tile_ * tile_outputs + output;
    if (column >= p_.n) return;
    const bool whole = column + 8 <= p_.n && puts_eights(p_);
    const float* const sums = reinterpret_cast<const float*>(shared_) +
                              output / group_outputs * S::rows * S::sum_stride + output % group_outputs;
    const int rows = min(S::rows, p_.m - first_row_);
#pragma unroll 4
    for (int row = thread / eights; row < rows; row += threads / eights) {
      float total[8]{};
#pragma unroll
      for (int part = 0; part < S::parts; ++part)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const Four<float> own =
              reinterpret_cast<const Four<float>*>(sums + (part * S::rows + row) * S::sum_stride)[half];
#pragma unroll
          for (int j = 0; j < 4; ++j) total[4 * half + j] += own.at[j];
        }
      put_eight(p_, first_row_ + row, column, whole, total);
    }
  }

  unsigned own_codes_, asked_at_, opened_at_, parity_;
  int pieces_left_, opened_, place_;
  const uint4* codes_;
};

/// A block: its first warpgroup produces, the others consume.
template <class S, class Block, class WideArgs>
__device__ void run_block(const WideArgs& args, char* shared) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  let_next_start();
  Block block(args, shared);
  if (threadIdx.x < 128) {
    hopper::give_registers<S::kept_registers>();
    if (threadIdx.x == 0) block.produce();
  } else {
    hopper::take_registers<S::taken_registers>();
    block.consume();
  }
#endif
}

/// `bytes` of an element of x.
template <class S, class WideArgs>
Status launch_blocks(void (*kernel)(WideArgs), WideArgs& args, int bytes, const Queue& queue) {
  const Args& p = args.p;
  const std::int64_t slots = std::int64_t{p.chunks} * chunk_slots;
  const Status mapped = make_tensor_map(p.x, p.m, slots, bytes, p.x_stride, {128 / bytes, S::rows}, &args.x);
  if (mapped != Status::ok) return mapped;
  args.row_tiles = static_cast<int>(over(p.m, S::rows));
  return launch_beside(kernel, args.row_tiles * over(p.n, S::outputs), S::threads, S::bytes, queue, args);
}

}  // namespace bie::kernels::cuda::weight_only::wide
