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

/// The scales of the runs that the next stage of each part of the depth meets.
template <class S>
class RunsOfStages {
 public:
  __device__ RunsOfStages(const Int8Args& p, int first_row, int stages) : p_(p), first_row_(first_row) {
#pragma unroll
    for (int part = 0; part < S::parts; ++part) {
      const int chunk = part * stages * S::stage_chunks;
      run_[part] = chunk / p.group_chunks;
      left_[part] = p.group_chunks - chunk % p.group_chunks;
    }
  }
  __device__ int bytes(int part) const { return count(part) * S::run_bytes; }
  __device__ void load(int part, unsigned to, unsigned barrier) const {
    const RowScale* from = p_.row_scales + std::int64_t{run_[part]} * p_.scale_rows + first_row_;
    for (int i = count(part); i > 0; --i, to += S::run_bytes, from += p_.scale_rows)
      hopper::load_bytes(to, from, S::run_bytes, barrier);
  }
  __device__ void pass(int part) {
    left_[part] -= S::stage_chunks;
    for (; left_[part] <= 0; ++run_[part]) left_[part] += p_.group_chunks;
  }

 private:
  __device__ int count(int part) const {
    int count = 0;
    for (int end = left_[part]; run_[part] + count < p_.runs; end += p_.group_chunks) {
      ++count;
      if (end >= S::stage_chunks) break;
    }
    return count;
  }

  const Int8Args& p_;
  int first_row_, run_[S::parts], left_[S::parts];
};

template <class S>
class Int8Block : BlockOfStages<S> {
  using Base = BlockOfStages<S>;
  using Left = unsigned[steps][4];  ///< the weight of a stage
  using Base::lane_, Base::part_, Base::stages_, Base::step_;

 public:
  __device__ Int8Block(const Int8WideArgs& args, char* shared)
      : Base(args.p, args.row_tiles, shared), x_(args.x), p_(args.p) {}

  __device__ void produce() { Base::produce(x_, RunsOfStages<S>(p_, this->first_row_, stages_)); }

  __device__ void consume() {
    const int chunk = part_ * stages_ * S::stage_chunks;
    Base::begin_codes();
    run_ = chunk < p_.chunks ? chunk / p_.group_chunks : p_.runs;
    records_ = Base::record_at(run_);
    Base::prefetch_records(records_, run_);
    begin_run(chunk);
#pragma unroll
    for (float& of_rows : sum_) of_rows = 0;
    Left left;
    open(left);
    Left other;
#pragma unroll 1
    for (int i = 1;; ++i) {
      multiply(left);
      if (i < stages_) open(other);
      finish(i == stages_);
      if (i == stages_) break;
      multiply(other);
      if (++i < stages_) open(left);
      finish(i == stages_);
      if (i == stages_) break;
    }
    Base::put(sum_);
  }

 private:
  __device__ void begin_run(int chunk) {
    fresh_ = true;
    left_in_run_ = run_ < p_.runs ? min((run_ + 1) * p_.group_chunks, p_.chunks) - chunk : INT32_MAX;
    if (run_ < p_.runs) {
      record_ = Record::at(records_, p_.wide_scales);
      records_ += p_.record_bytes;
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

  /// Starts the products of the next stage, whose weight is `left`; where a group ends within it, to their ends.
  __device__ void multiply(Left& left) {
    stage_at_ = Base::stage_at(Base::wait_for_stage());
    const std::uint64_t right = hopper::tile_descriptor(stage_at_);
    first_run_ = run_;
    whole_ = left_in_run_ >= S::stage_chunks;
    if (whole_) {
      hopper::fence_products();
#pragma unroll
      for (int step = 0; step < steps; ++step)
        wgmma_u8s8(acc_, left[step], right + 2 * step, step > 0 || !fresh_ ? 1 : 0);
      hopper::commit_products();
      fresh_ = false;
      return;
    }
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
      if (--left_in_run_ == 0) end_run(true);
    }
  }
  /// `last`: there is no other stage. The next part has the rest of the group then, and adds what belongs to it once.
  __device__ void finish(bool last) {
    hopper::wait_products<0>();
    if (whole_) left_in_run_ -= S::stage_chunks;
    const bool ends = left_in_run_ == 0;
    if (ends || (last && !fresh_ && run_ < p_.runs)) end_run(ends);
    Base::release_stage();
  }

  /// The products of a group to the sums; `whole`: the group ends, not the part of the depth.
  __device__ void end_run(bool whole) {
    ByteScales<S::width> scales;
    scales.set(p_, record_, middle_);
    const unsigned at = stage_at_ + S::row_bytes + (run_ - first_run_) * S::run_bytes + lane_ % 4 * 16;
    ++run_;
    begin_run(run_ * p_.group_chunks);
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
  int run_, left_in_run_, first_run_;  ///< first_run_: of the stage
  bool fresh_, whole_;                 ///< the next product is the first of its group; the stage is of one group
  unsigned stage_at_;
  const char* records_;
  Record record_;
  float middle_;
  int acc_[S::rows / 2];
  float sum_[S::rows / 2];
};

template <class S>
__global__ void __launch_bounds__(S::threads, 1) int8_kernel(const __grid_constant__ Int8WideArgs args) {
  extern __shared__ __align__(1024) char shared[];  // the swizzle needs this alignment
  run_block<S, Int8Block<S>>(args, shared);
}

}  // namespace wide

template <int width>
Status run_int8_wide(Int8WideArgs& args, const Gpu& gpu, const Queue& queue) {
  const auto start = [&](auto stages) {
    using S = decltype(stages);
    return wide::launch_blocks<S>(wide::int8_kernel<S>, args, 1, queue);
  };
  const int m = args.p.m;
  if (m <= 64) return start(wide::Int8Stages<width, 64, 3, wide::Shared::depth>{});
  if (over(m, 128) * over(args.p.n, 64) <= gpu.multiprocessors)
    return start(wide::Int8Stages<width, 128, 2, wide::Shared::depth>{});
  return start(wide::Int8Stages<width, 128, 2, wide::Shared::outputs>{});
}

}  // namespace bie::kernels::cuda::weight_only
