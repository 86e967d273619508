// The product of many rows of 16-bit floats with panels of codes, on Hopper's warpgroup instructions (sm_90a). The
// weight is the left operand, opened in registers to floats of the activation's dtype, scale and zero included; the
// activation is the right one, in shared memory, where one warp keeps a ring of stages filled by the TMA. Each lane
// copies the codes that it opens through a ring of its own. A block's warpgroups multiply a part of the depth each, and
// their sums meet in shared memory.
#pragma once

#include <algorithm>

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/weight_only_put.cuh"
#include "kernels/cuda/weight_only_wide.h"
#include "kernels/cuda/wgmma.cuh"

namespace bie::kernels::cuda::weight_only {

namespace wide {

constexpr int depth = 64;  ///< slots of a stage: 128 bytes of a row
constexpr int steps = depth / 16;
constexpr int outputs = 64;    ///< of a tile
constexpr int code_slots = 8;  ///< 16-byte pieces of codes of a lane that are under way

/// Rows of a tile, and the warpgroups that multiply a part of the depth each.
template <class Float_, int width_, int rows_, int warpgroups_>
struct Shape {
  using Float = Float_;
  static constexpr int width = width_, rows = rows_, parts = warpgroups_;
  static constexpr int threads = 128 * (parts + 1), stage_bytes = rows * depth * 2;
  static constexpr bool moves_registers = parts == 2;  ///< from the producer; four have enough
  static constexpr int code_bytes = parts * 4 * code_slots * step_bytes;
  static constexpr int stages = std::min(4 * parts, (226 * 1024 - code_bytes) / stage_bytes);
  static constexpr int codes_at = stages * stage_bytes, barriers_at = codes_at + code_bytes;
  static constexpr int bytes = barriers_at + 16 * stages;
  static constexpr int sum_stride = outputs + 4;  ///< floats from one row of sums to the next
  static_assert(parts * rows * sum_stride * 4 <= codes_at);
  /// Stages that one step of codes covers, or steps of a stage.
  static constexpr int span = std::max(1, step_chunks(width) / 2), pieces = std::max(1, 2 / step_chunks(width));
  static constexpr int ahead = code_slots / pieces;  ///< spans
};

template <class S>
class Block {
  using Float = typename S::Float;
  using Two = typename Pair<Float>::Type;
  using Left = unsigned[steps][4];  ///< the weight of a stage

 public:
  __device__ Block(const WideArgs& args, char* shared) : args_(args), p_(args.p), shared_(shared) {
    base_ = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    first_row_ = static_cast<int>(blockIdx.x) % args.row_tiles * S::rows;
    first_tile_ = static_cast<int>(blockIdx.x) / args.row_tiles * (outputs / tile_outputs);
    constexpr int together = 2 * S::span * S::parts;  // chunks; the last stages may have none
    stages_ = (p_.chunks + together - 1) / together * S::span;
    if (threadIdx.x == 0) {
      for (int i = 0; i < S::stages; ++i) {
        hopper::init_barrier(full(i), 1);
        hopper::init_barrier(empty(i), 4);  // a lane of each warp that reads it
      }
      hopper::publish_barriers();
    }
    __syncthreads();
  }

  /// One thread keeps the ring full, for all parts of the depth in turns.
  __device__ void produce() {
    hopper::prefetch(args_.x);
    wait_for_previous_kernel();
    for (int number = 0; number < stages_ * S::parts; ++number) {
      const int place = number % S::stages, turn = number / S::stages;
      hopper::wait(empty(place), (turn & 1) ^ 1);
      hopper::arrive_expecting(full(place), S::stage_bytes);
      const int stage = number % S::parts * stages_ + number / S::parts;
      hopper::load_box(base_ + place * S::stage_bytes, args_.x, stage * depth, first_row_, full(place));
    }
  }

  /// A warpgroup multiplies, and all write.
  __device__ void consume() {
    const int part = static_cast<int>(threadIdx.x) / 128 - 1;
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    lane_ = lane;
    tile_ = first_tile_ + warp;
    own_codes_ = base_ + S::codes_at + ((part * 4 + warp) * code_slots * 32 + lane) * 16;
    begin(part * stages_);

    float acc[S::rows / 2];
#pragma unroll
    for (float& sum : acc) sum = 0;
    Left even, odd;
    open(even);
    for (int i = 0; i < stages_; i += 2) {
      multiply(acc, even, odd, i, part);
      if (i + 1 < stages_) multiply(acc, odd, even, i + 1, part);
    }
    wait_copies<0>();
    sync_consumers();  // nobody reads the ring any more
    float* const sums = reinterpret_cast<float*>(shared_) + part * S::rows * S::sum_stride;
#pragma unroll
    for (int j = 0; j < S::rows / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          sums[(8 * j + lane % 4 * 2 + e) * S::sum_stride + 16 * warp + lane / 4 + 8 * half] =
              acc[4 * j + 2 * half + e];
    sync_consumers();
    write();
  }

 private:
  __device__ unsigned full(int stage) const { return base_ + S::barriers_at + 8 * stage; }
  __device__ unsigned empty(int stage) const { return full(S::stages + stage); }
  static __device__ void sync_consumers() { asm volatile("bar.sync 1, %0;" ::"n"(128 * S::parts) : "memory"); }

  /// Codes and scales from stage `first` on are under way.
  __device__ void begin(int first) {
    chunk_ = 2 * first;
    opened_ = 0;
    const int first_step = first * S::pieces / S::span;
    codes_ = p_.codes + (std::int64_t{min(tile_, p_.tiles - 1)} * p_.steps + first_step) * 32 + lane_;
    pieces_left_ = p_.steps - first_step;
    spans_ = stages_ / S::span;
    asked_ = 0;
#pragma unroll
    for (int i = 0; i < S::ahead - 1; ++i) ask();
    run_ = min(chunk_ / p_.group_chunks, p_.runs - 1);
    left_in_run_ = p_.group_chunks - (chunk_ - run_ * p_.group_chunks);
    next_ = record(run_);
    middle_ = middle(run_);
    take_record();
  }
  __device__ void ask() {
    if (asked_ < spans_) {
#pragma unroll
      for (int i = 0; i < S::pieces; ++i)
        if (i < pieces_left_)
          copy_chunk(own_codes_ + (asked_ % S::ahead * S::pieces + i) * step_bytes, codes_ + 32 * i, true);
      codes_ += 32 * S::pieces;
      pieces_left_ -= S::pieces;
    }
    ++asked_;
    commit_copies();
  }
  __device__ Record record(int run) const { return record_of(p_, run, min(tile_, p_.tiles - 1), lane_ / 4); }
  __device__ float middle(int run) const { return p_.offset == Offset::value ? __ldg(p_.middles + run) : 0; }
  /// The next group's scales serve, and those behind it are asked for.
  __device__ void take_record() {
    const bool by_value = p_.offset == Offset::value;
    opener_.set(by_value ? ((1u << (S::width - 1)) - static_cast<unsigned>(middle_)) * 0x10001 : next_.zeros(p_));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scale_[half] = Pair<Float>::of(next_.scale(p_, half));
      offset_[half] = Pair<Float>::of(by_value ? -next_.value(p_, half) : 0.0f);
    }
    if (run_ + 1 < p_.runs) {
      next_ = record(run_ + 1);
      middle_ = middle(run_ + 1);
    }
  }

  /// The weight of the next stage.
  __device__ void open(Left& left) {
    const int of_span = opened_ % S::span;
    if (of_span == 0) {
      ask();
      wait_copies<S::ahead - 1>();
      const int span = opened_ / S::span;
#pragma unroll
      for (int i = 0; i < S::pieces; ++i)
        step_[i] = load_chunk(own_codes_ + (span % S::ahead * S::pieces + i) * step_bytes);
    }
    if constexpr (S::span == 1) {
      open_chunk<0>(left);
      open_chunk<1>(left);
    } else if constexpr (S::span == 2) {
      if (of_span == 0)
        open_chunk<0>(left), open_chunk<1>(left);
      else
        open_chunk<2>(left), open_chunk<3>(left);
    } else {
      switch (of_span) {
        case 0: open_chunk<0>(left), open_chunk<1>(left); break;
        case 1: open_chunk<2>(left), open_chunk<3>(left); break;
        case 2: open_chunk<4>(left), open_chunk<5>(left); break;
        default: open_chunk<6>(left), open_chunk<7>(left); break;
      }
    }
    ++opened_;
    hopper::pin(left);
  }
  /// Chunk c of a span.
  template <int c>
  __device__ void open_chunk(Left& left) {
    unsigned a[2][4];
    opener_.open(step_[c / step_chunks(S::width)], c % step_chunks(S::width), a);
    const bool there = chunk_ < p_.chunks;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const Two w = __hfma2(reinterpret_cast<const Two&>(a[i][j]), scale_[j % 2], offset_[j % 2]);
        left[c % 2 * 2 + i][j] = there ? reinterpret_cast<const unsigned&>(w) : 0;
      }
    ++chunk_;
    if (--left_in_run_ == 0) {
      left_in_run_ = p_.group_chunks;
      if (++run_ < p_.runs) take_record();
    }
  }

  /// Multiplies stage i, and opens the next one meanwhile.
  __device__ void multiply(float (&acc)[S::rows / 2], Left& left, Left& next, int i, int part) {
    const int number = S::parts * i + part, place = number % S::stages;
    hopper::wait(full(place), number / S::stages & 1);
    hopper::fence_products();
    const std::uint64_t right = hopper::tile_descriptor(base_ + place * S::stage_bytes);
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      if constexpr (std::is_same_v<Float, __nv_bfloat16>)
        wgmma_bf16<false>(acc, left[step], right + 2 * step, 1);
      else
        wgmma_f16<false>(acc, left[step], right + 2 * step, 1);
    }
    hopper::commit_products();
    if (i + 1 < stages_) open(next);
    hopper::wait_products<0>();
    if (lane_ == 0) hopper::arrive(empty(place));
  }

  /// Sums of the parts to the result, two neighbours a thread.
  __device__ void write() const {
    const float* const sums = reinterpret_cast<const float*>(shared_);
    const int thread = static_cast<int>(threadIdx.x) - 128;
    for (int i = thread; i < S::rows * outputs / 2; i += 128 * S::parts) {
      const int row = i / (outputs / 2), output = i % (outputs / 2) * 2;
      const int column = first_tile_ * tile_outputs + output;
      if (first_row_ + row >= p_.m || column >= p_.n) continue;
      float2 pair = *reinterpret_cast<const float2*>(sums + row * S::sum_stride + output);
#pragma unroll
      for (int part = 1; part < S::parts; ++part) {
        const float2 more = *reinterpret_cast<const float2*>(sums + (part * S::rows + row) * S::sum_stride + output);
        pair.x += more.x, pair.y += more.y;
      }
      put_pair(p_, first_row_ + row, column, pair.x, pair.y);
    }
  }

  const WideArgs& args_;
  const Args& p_;
  char* const shared_;
  unsigned base_, own_codes_;
  int first_row_, first_tile_, stages_;  ///< stages_: of a part of the depth
  int lane_, tile_, spans_, pieces_left_, asked_, opened_, chunk_, run_, left_in_run_;
  const uint4* codes_;
  uint4 step_[S::pieces];
  Record next_;
  float middle_;
  Opener<Float, S::width> opener_;
  Two scale_[2], offset_[2];
};

template <class S>
__global__ void __launch_bounds__(S::threads, 1) wide_kernel(const __grid_constant__ WideArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) char shared[];  // what the swizzle wants
  let_next_start();
  Block<S> block(args, shared);
  if (threadIdx.x < 128) {
    if constexpr (S::moves_registers) hopper::give_registers<40>();
    if (threadIdx.x == 0) block.produce();
  } else {
    if constexpr (S::moves_registers) hopper::take_registers<232>();
    block.consume();
  }
#endif
}

template <class S>
Status launch_wide(WideArgs& args, const void* x, const Queue& queue) {
  const Args& p = args.p;
  const std::int64_t slots = std::int64_t{p.chunks} * chunk_slots;
  const Status mapped = make_tensor_map(x, p.m, slots, 2, slots * 2, {depth, S::rows}, &args.x);
  if (mapped != Status::ok) return mapped;
  args.row_tiles = static_cast<int>(over(p.m, S::rows));
  return launch_beside(wide_kernel<S>, args.row_tiles * over(p.n, outputs), S::threads, S::bytes, queue, args);
}

}  // namespace wide

template <int width>
Status run_wide(WideArgs& args, const void* x, bool bf16, const Queue& queue) {
  const auto with = [&](auto shape_of) {
    return bf16 ? wide::launch_wide<decltype(shape_of(__nv_bfloat16{}))>(args, x, queue)
                : wide::launch_wide<decltype(shape_of(__half{}))>(args, x, queue);
  };
  return args.p.m > 64 ? with([](auto f) { return wide::Shape<decltype(f), width, 128, 2>{}; })
                       : with([](auto f) { return wide::Shape<decltype(f), width, 64, 4>{}; });
}

}  // namespace bie::kernels::cuda::weight_only
