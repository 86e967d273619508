// The product of many rows of 8-bit codes with panels of codes, on Hopper's warpgroup instructions (sm_90a): the weight
// is opened to unsigned bytes. Products of a group are exact in int32; its end multiplies them with the scales.
#pragma once

#include "kernels/cuda/weight_only_int8_tile.cuh"
#include "kernels/cuda/weight_only_stages.cuh"

namespace bie::kernels::cuda::weight_only {

namespace wide {

/// A stage brings the rows' scales of up to four runs.
template <int width, int rows, int warpgroups, Shared shared>
struct Int8Stages : Stages<width, rows, warpgroups, shared, 4, 4 * rows * sizeof(RowScale)> {
  static constexpr int run_bytes = rows * sizeof(RowScale);
};

template <class S>
class Int8Block : BlockOfStages<S> {
  using Base = BlockOfStages<S>;
  using Left = unsigned[steps][4];  ///< the weight of a stage
  using Base::lane_, Base::part_, Base::stages_, Base::step_;

 public:
  __device__ Int8Block(const Int8WideArgs& args, char* shared)
      : Base(args.p, args.row_tiles, shared), x_(args.x), p_(args.p) {}

  __device__ void produce() {
    const auto first_run = [&](int stage) { return stage * S::stage_chunks / p_.group_chunks; };
    const auto runs = [&](int stage) {
      const int last = min(((stage + 1) * S::stage_chunks - 1) / p_.group_chunks, p_.runs - 1);
      return max(last - first_run(stage) + 1, 0);
    };
    Base::produce(
        x_, [&](int stage) { return runs(stage) * S::run_bytes; },
        [&](int stage, unsigned to, unsigned barrier) {
          const RowScale* from = p_.row_scales + std::int64_t{first_run(stage)} * p_.scale_rows + this->first_row_;
          for (int i = runs(stage); i > 0; --i, to += S::run_bytes, from += p_.scale_rows)
            hopper::load_bytes(to, from, S::run_bytes, barrier);
        });
  }

  __device__ void consume() {
    const int first = part_ * stages_, chunk = first * S::stage_chunks;
    Base::begin_codes(first);
    run_ = chunk < p_.chunks ? chunk / p_.group_chunks : p_.runs;
    fresh_ = true;
    begin_run(chunk);
#pragma unroll
    for (float& of_rows : sum_) of_rows = 0;
    Left even, odd;
    open(even);
    for (int i = 0; i < stages_; i += 2) {
      multiply(even, odd, i, first);
      if (i + 1 < stages_) multiply(odd, even, i + 1, first);
    }
    Base::put(sum_);
  }

 private:
  __device__ void begin_run(int chunk) {
    left_in_run_ = run_ < p_.runs ? min((run_ + 1) * p_.group_chunks, p_.chunks) - chunk : INT32_MAX;
    if (run_ < p_.runs) {
      record_ = Base::record(run_);
      middle_ = Base::middle(run_);
    }
  }

  /// The weight of the next stage.
  __device__ void open(Left& left) {
    Base::open_stage([&](int c) {
      open_bytes<S::width>(step_[c / step_chunks(S::width)], c % step_chunks(S::width), left[c % S::stage_chunks]);
    });
    hopper::pin(left);
  }

  /// Multiplies stage i of the part whose first stage is `first`, and opens the next one meanwhile.
  __device__ void multiply(Left& left, Left& next, int i, int first) {
    const int place = Base::wait_for_stage(i), stage = first + i;
    const std::uint64_t right = hopper::tile_descriptor(Base::stage_at(place));
    if (left_in_run_ >= S::stage_chunks) {
      hopper::fence_products();
#pragma unroll
      for (int step = 0; step < steps; ++step)
        wgmma_u8s8(acc_, left[step], right + 2 * step, step > 0 || !fresh_ ? 1 : 0);
      hopper::commit_products();
      fresh_ = false;
      if (i + 1 < stages_) open(next);
      hopper::wait_products<0>();
      left_in_run_ -= S::stage_chunks;
      if (left_in_run_ == 0) end_run(place, stage, true);
    } else {  // a group ends within the stage
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        hopper::pin(left[0]);
        hopper::fence_products();
        wgmma_u8s8(acc_, left[0], right + 2 * step, fresh_ ? 0 : 1);
        hopper::commit_products();
        fresh_ = false;
        hopper::wait_products<0>();
#pragma unroll
        for (int s = 0; s + 1 < steps; ++s)
#pragma unroll
          for (int j = 0; j < 4; ++j) left[s][j] = left[s + 1][j];
        if (--left_in_run_ == 0) end_run(place, stage, true);
      }
      if (i + 1 < stages_) open(next);
    }
    // The next part has the rest of the group, and adds what belongs to the group once.
    if (i + 1 == stages_ && !fresh_ && run_ < p_.runs) end_run(place, stage, false);
    Base::release_stage(place);
  }

  /// The products of a group, which end in a stage, to the sums; `whole`: the group ends, not the part of the depth.
  __device__ void end_run(int place, int stage, bool whole) {
    ByteScales<S::width> scales;
    scales.set(p_, record_, middle_);
    const int of_stage = run_ - stage * S::stage_chunks / p_.group_chunks;
    const unsigned at = Base::stage_at(place) + S::row_bytes + of_stage * S::run_bytes + lane_ % 4 * 16;
    ++run_;
    begin_run(run_ * p_.group_chunks);
    fresh_ = true;
#pragma unroll
    for (int j = 0; j < S::rows / 8; ++j) {
      const uint4 two = load_chunk(at + 64 * j);
      const float step[2] = {__uint_as_float(two.x), __uint_as_float(two.z)};
      const float sums[2] = {whole ? __uint_as_float(two.y) : 0, whole ? __uint_as_float(two.w) : 0};
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int at_sum = 4 * j + 2 * half + e;
          const float product = static_cast<float>(acc_[at_sum]) * step[e];
          sum_[at_sum] = fmaf(sums[e], scales.add[half], fmaf(product, scales.scale[half], sum_[at_sum]));
        }
    }
  }

  const CUtensorMap& x_;
  const Int8Args& p_;
  int run_, left_in_run_;
  bool fresh_;  ///< the next product is the first of its group
  Record record_;
  float middle_;
  int acc_[S::rows / 2];
  float sum_[S::rows / 2];
};

template <class S>
__global__ void __launch_bounds__(S::threads, 1) int8_kernel(const __grid_constant__ Int8WideArgs args) {
  extern __shared__ __align__(1024) char shared[];  // what the swizzle wants
  run_block<S, Int8Block<S>>(args, shared);
}

}  // namespace wide

template <int width>
Status run_int8_wide(Int8WideArgs& args, const Queue& queue) {
  const auto start = [&](auto stages) {
    using S = decltype(stages);
    return wide::launch_blocks<S>(wide::int8_kernel<S>, args, args.p.x, 1, queue);
  };
  if (args.p.m <= 64) return start(wide::Int8Stages<width, 64, 3, wide::Shared::depth>{});
  if (args.p.m <= 128) return start(wide::Int8Stages<width, 128, 2, wide::Shared::depth>{});
  return start(wide::Int8Stages<width, 128, 2, wide::Shared::outputs>{});
}

}  // namespace bie::kernels::cuda::weight_only
