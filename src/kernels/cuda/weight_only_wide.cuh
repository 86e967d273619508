// The product of many rows of 16-bit floats with panels of codes, on Hopper's warpgroup instructions (sm_90a): the
// weight is opened to floats of the activation's dtype, scale and zero included.
#pragma once

#include "kernels/cuda/weight_only_stages.cuh"
#include "kernels/cuda/weight_only_wide.h"

namespace bie::kernels::cuda::weight_only {

namespace wide {

template <class Float_, int width, int rows, int warpgroups, Shared shared>
struct FloatStages : Stages<width, rows, warpgroups, shared, 2, 0> {
  using Float = Float_;
};

template <class S>
class FloatBlock : BlockOfStages<S> {
  using Base = BlockOfStages<S>;
  using Float = typename S::Float;
  using Two = typename Pair<Float>::Type;
  using Left = unsigned[steps][4];  ///< the weight of a stage
  struct NoScales {
    __device__ int bytes(int) const { return 0; }
    __device__ void load(int, unsigned, unsigned) const {}
    __device__ void pass(int) const {}
  };
  using Base::lane_, Base::p_, Base::part_, Base::stages_, Base::step_;

 public:
  __device__ FloatBlock(const WideArgs& args, char* shared) : Base(args.p, args.row_tiles, shared), x_(args.x) {}

  __device__ void produce() { Base::produce(x_, NoScales{}); }

  __device__ void consume() {
    Base::begin_codes();
    begin_run(part_ * stages_ * S::stage_chunks);
    float acc[S::rows / 2];
#pragma unroll
    for (float& sum : acc) sum = 0;
    Left left;
    open(left);
    Left other;
#pragma unroll 1
    for (int i = 1;; ++i) {
      multiply(acc, left);
      if (i < stages_) open(other);
      finish();
      if (i == stages_) break;
      multiply(acc, other);
      if (++i < stages_) open(left);
      finish();
      if (i == stages_) break;
    }
    Base::put(acc);
  }

 private:
  /// Scales are of Float.
  __device__ void begin_run(int chunk) {
    run_ = chunk < p_.chunks ? chunk / p_.group_chunks : p_.runs;
    records_ = Base::record_at(run_);
    Base::prefetch_records(records_, run_);
    ask_record();
    take_record(chunk);
  }
  __device__ void ask_record() {
    if (run_ >= p_.runs) return;
    next_ = __ldg(reinterpret_cast<const uint2*>(records_));
    records_ += p_.record_bytes;
    middle_ = Base::middle(run_);
  }
  /// Makes the run's scales current and prefetches those of the next run; behind the last run all are 0.
  __device__ void take_record(int chunk) {
    if (run_ >= p_.runs) {
      opener_.set(0);
      scale_[0] = scale_[1] = offset_[0] = offset_[1] = Pair<Float>::of(0);
      left_in_run_ = INT32_MAX;
      return;
    }
    const bool by_value = p_.offset == Offset::value;
    opener_.set(by_value ? ((1u << (S::width - 1)) - static_cast<unsigned>(middle_)) * 0x10001 : next_.y);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned twice = half == 0 ? 0x1010 : 0x3232;
      scale_[half] = pair(__byte_perm(next_.x, 0, twice));
      offset_[half] = pair(by_value ? __byte_perm(next_.y, 0, twice) ^ 0x80008000 : 0);
    }
    left_in_run_ = min((run_ + 1) * p_.group_chunks, p_.chunks) - chunk;
    ++run_;
    ask_record();
  }
  static __device__ Two pair(unsigned bits) { return reinterpret_cast<const Two&>(bits); }

  /// The weight of the next stage.
  __device__ void open(Left& left) {
    Base::open_stage([&](int c) {
      unsigned a[2][4];
      opener_.open(step_[c / step_chunks(S::width)], c % step_chunks(S::width), a);
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const Two w = __hfma2(pair(a[i][j]), scale_[j % 2], offset_[j % 2]);
          left[c % 2 * 2 + i][j] = reinterpret_cast<const unsigned&>(w);
        }
      if (--left_in_run_ == 0) take_record(run_ * p_.group_chunks);
    });
    hopper::pin(left);
  }

  /// Starts the products of the next stage, whose weight is `left`.
  __device__ void multiply(float (&acc)[S::rows / 2], Left& left) {
    const std::uint64_t right = hopper::tile_descriptor(Base::stage_at(Base::wait_for_stage()));
    hopper::fence_products();
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      if constexpr (std::is_same_v<Float, __nv_bfloat16>)
        wgmma_bf16<false>(acc, left[step], right + 2 * step, 1);
      else
        wgmma_f16<false>(acc, left[step], right + 2 * step, 1);
    }
    hopper::commit_products();
  }
  __device__ void finish() {
    hopper::wait_products<0>();
    Base::release_stage();
  }

  const CUtensorMap& x_;
  int run_, left_in_run_;  ///< the run whose scales were asked for; chunks that the ones at hand serve
  const char* records_;
  uint2 next_;
  float middle_;
  Opener<Float, S::width> opener_;
  Two scale_[2], offset_[2];
};

template <class S>
__global__ void __launch_bounds__(S::threads, 1) float_kernel(const __grid_constant__ WideArgs args) {
  extern __shared__ __align__(1024) char shared[];  // the swizzle needs this alignment
  run_block<S, FloatBlock<S>>(args, shared);
}

}  // namespace wide

template <int width>
Status run_wide(WideArgs& args, bool bf16, const Queue& queue) {
  const auto with = [&](auto stages_of) {
    const auto start = [&](auto stages) {
      using S = decltype(stages);
      return wide::launch_blocks<S>(wide::float_kernel<S>, args, 2, queue);
    };
    return bf16 ? start(stages_of(__nv_bfloat16{})) : start(stages_of(__half{}));
  };
  using wide::Shared;
  switch (args.tile) {
    case WideTile::rows64:
      return with([](auto f) { return wide::FloatStages<decltype(f), width, 64, 4, Shared::depth>{}; });
    case WideTile::rows128:
      return with([](auto f) { return wide::FloatStages<decltype(f), width, 128, 3, Shared::depth>{}; });
    default: return with([](auto f) { return wide::FloatStages<decltype(f), width, 256, 2, Shared::outputs>{}; });
  }
}

}  // namespace bie::kernels::cuda::weight_only
