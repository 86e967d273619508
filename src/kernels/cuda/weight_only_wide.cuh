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
  using Base::lane_, Base::p_, Base::part_, Base::stages_, Base::step_;

 public:
  __device__ FloatBlock(const WideArgs& args, char* shared) : Base(args.p, args.row_tiles, shared), x_(args.x) {}

  __device__ void produce() {
    Base::produce(
        x_, [](int) { return 0; }, [](int, unsigned, unsigned) {});
  }

  __device__ void consume() {
    begin(part_ * stages_);
    float acc[S::rows / 2];
#pragma unroll
    for (float& sum : acc) sum = 0;
    Left even, odd;
    open(even);
    for (int i = 0; i < stages_; i += 2) {
      multiply(acc, even, odd, i);
      if (i + 1 < stages_) multiply(acc, odd, even, i + 1);
    }
    Base::put(acc);
  }

 private:
  /// Codes and scales from stage `first` on are under way.
  __device__ void begin(int first) {
    Base::begin_codes(first);
    const int chunk = first * S::stage_chunks;
    run_ = chunk < p_.chunks ? chunk / p_.group_chunks : p_.runs;
    if (run_ < p_.runs) next_ = Base::record(run_), middle_ = Base::middle(run_);
    take_record(chunk);
  }
  /// The scales of the run serve, and those behind it are asked for. Behind the last one all are 0.
  __device__ void take_record(int chunk) {
    if (run_ >= p_.runs) {
      opener_.set(0);
      scale_[0] = scale_[1] = offset_[0] = offset_[1] = Pair<Float>::of(0);
      left_in_run_ = INT32_MAX;
      return;
    }
    left_in_run_ = min((run_ + 1) * p_.group_chunks, p_.chunks) - chunk;
    const bool by_value = p_.offset == Offset::value;
    opener_.set(by_value ? ((1u << (S::width - 1)) - static_cast<unsigned>(middle_)) * 0x10001 : next_.zeros(p_));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scale_[half] = Pair<Float>::of(next_.scale(p_, half));
      offset_[half] = Pair<Float>::of(by_value ? -next_.value(p_, half) : 0.0f);
    }
    if (run_ + 1 < p_.runs) {
      next_ = Base::record(run_ + 1);
      middle_ = Base::middle(run_ + 1);
    }
  }

  /// The weight of the next stage.
  __device__ void open(Left& left) {
    Base::open_stage([&](int c) {
      unsigned a[2][4];
      opener_.open(step_[c / step_chunks(S::width)], c % step_chunks(S::width), a);
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const Two w = __hfma2(reinterpret_cast<const Two&>(a[i][j]), scale_[j % 2], offset_[j % 2]);
          left[c % 2 * 2 + i][j] = reinterpret_cast<const unsigned&>(w);
        }
      if (--left_in_run_ == 0) {
        ++run_;
        take_record(run_ * p_.group_chunks);
      }
    });
    hopper::pin(left);
  }

  /// Multiplies stage i, and opens the next one meanwhile.
  __device__ void multiply(float (&acc)[S::rows / 2], Left& left, Left& next, int i) {
    const int place = Base::wait_for_stage(i);
    hopper::fence_products();
    const std::uint64_t right = hopper::tile_descriptor(Base::stage_at(place));
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
    Base::release_stage(place);
  }

  const CUtensorMap& x_;
  int run_, left_in_run_;
  Record next_;
  float middle_;
  Opener<Float, S::width> opener_;
  Two scale_[2], offset_[2];
};

template <class S>
__global__ void __launch_bounds__(S::threads, 1) float_kernel(const __grid_constant__ WideArgs args) {
  extern __shared__ __align__(1024) char shared[];  // what the swizzle wants
  run_block<S, FloatBlock<S>>(args, shared);
}

}  // namespace wide

template <int width>
Status run_wide(WideArgs& args, const void* x, bool bf16, const Queue& queue) {
  const auto with = [&](auto stages_of) {
    const auto start = [&](auto stages) {
      using S = decltype(stages);
      return wide::launch_blocks<S>(wide::float_kernel<S>, args, x, 2, queue);
    };
    return bf16 ? start(stages_of(__nv_bfloat16{})) : start(stages_of(__half{}));
  };
  return args.p.m > 64
             ? with([](auto f) { return wide::FloatStages<decltype(f), width, 128, 2, wide::Shared::depth>{}; })
             : with([](auto f) { return wide::FloatStages<decltype(f), width, 64, 4, wide::Shared::depth>{}; });
}

}  // namespace bie::kernels::cuda::weight_only
