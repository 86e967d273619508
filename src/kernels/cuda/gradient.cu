#include "bie/kernels/cuda/gradient.h"

#include <cfloat>

#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/fours.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bie::kernels::cuda {
namespace {

/// max(v, floor) that keeps NaN.
__device__ float lifted(float v, float floor) { return v < floor ? floor : v; }

/// clamp(rint(v), lo, hi) as the CPU's loops take it (src/ops/elementwise.h): no -0 comes out, NaN stays.
__device__ float round_clamped(float v, float lo, float hi) {
  constexpr float shift = 0x1.8p23f;
  v = v < lo ? lo : v > hi ? hi : v;
  return (v + shift) - shift;
}

__device__ float inside_range(float v, float lo, float hi) { return v >= lo && v <= hi ? 1.0f : 0.0f; }

__device__ float clip_divisor(float scale) { return scale == 0 ? FLT_MIN : scale; }

__device__ float sign(float v) { return v > 0 ? 1.0f : v < 0 ? -1.0f : 0.0f; }

template <class T>
struct QuantizedValues {
  const float* x;
  Scalar scale, by;
  CodeBounds codes;
  T* out;

  __device__ void operator()(std::int64_t first, std::int64_t count) const {
    const float step = lifted(value_of(scale), codes.floor), factor = value_of(by);
    const Four<float> from = load_four(x, first, count);
    Four<T> v;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      v.at[j] = narrow<T>(round_clamped(__fdiv_rn(from.at[j], step), codes.lo, codes.hi) * factor);
    store_four(out, first, count, v);
  }
};

template <class T>
struct CodeValues {
  const std::int8_t* codes;
  Scalar scale;
  T* out;

  __device__ void operator()(std::int64_t first, std::int64_t count) const {
    const float by = value_of(scale);
    const Four<std::int8_t> q = load_four(codes, first, count);
    Four<T> v;
#pragma unroll
    for (int j = 0; j < 4; ++j) v.at[j] = narrow<T>(static_cast<float>(q.at[j]) * by);
    store_four(out, first, count, v);
  }
};

struct MaskClipped {
  float* grad;
  const float* w;
  Scalar scale;
  CodeBounds codes;

  __device__ void operator()(std::int64_t first, std::int64_t count) const {
    const float step = lifted(value_of(scale), codes.floor);
    const Four<float> weight = load_four(w, first, count);
    Four<float> g = load_four(static_cast<const float*>(grad), first, count);
#pragma unroll
    for (int j = 0; j < 4; ++j) g.at[j] *= inside_range(__fdiv_rn(weight.at[j], step), codes.lo, codes.hi);
    store_four(grad, first, count, g);
  }
};

template <class From, class T>
struct SignValues {
  const From* t;
  Scalar scale;
  T* out;

  __device__ void operator()(std::int64_t first, std::int64_t count) const {
    const float by = value_of(scale);
    const Four<From> from = load_four(t, first, count);
    Four<T> v;
#pragma unroll
    for (int j = 0; j < 4; ++j) v.at[j] = narrow<T>(sign(widen(from.at[j])) * by);
    store_four(out, first, count, v);
  }
};

// Gradients of activations, each with the sum that scale_a's takes.

struct Terms {
  double sum;
  __device__ static Terms none() { return {0}; }
  __device__ void add(const Terms& other) { sum += other.sum; }
};

struct StoreScaleGrad {
  Scalar scale;
  double denominator;
  float* out;
  __device__ void operator()(const Terms& total) const {
    *out = value_of(scale) == 0 ? 0.0f : static_cast<float>(total.sum / denominator);
  }
};

struct QuantizerBackward {
  float* up;
  const float* xs;
  Scalar scale;
  CodeBounds codes;
  StepRule rule;

  __device__ void operator()(std::int64_t i, Terms& total) const {
    const float by = value_of(scale);
    const float v = __fdiv_rn(xs[i], clip_divisor(by));
    const float inside = inside_range(v, codes.lo, codes.hi);
    const float g = up[i];
    const float grad = g * (rule.scaled ? by : 1.0f) * inside;
    // Outside, the clamped value is the bound itself.
    const float term = (round_clamped(v, codes.lo, codes.hi) - v * inside) * (rule.exact ? g : grad);
    total.sum += term;
    up[i] = grad;
  }
};

struct SignBackward {
  float* up;
  const float* xs;
  Scalar scale_a, scale_w;

  __device__ void operator()(std::int64_t i, Terms& total) const {
    const float x = xs[i];
    const float inside = inside_range(__fdiv_rn(x, clip_divisor(value_of(scale_a))), -1, 1);
    const float grad = up[i] * value_of(scale_w) * inside;
    total.sum += grad * sign(x);
    up[i] = grad;
  }
};

}  // namespace

Status quantized_values(const float* x, std::int64_t count, const Scalar& scale, const CodeBounds& codes,
                        const Scalar& by, void* out, Dtype out_dtype, const Queue& queue) {
  return with_float(out_dtype, [&](auto element) {
    using T = decltype(element);
    return for_fours(count, QuantizedValues<T>{x, scale, by, codes, static_cast<T*>(out)}, queue);
  });
}

Status code_values(const std::int8_t* codes, std::int64_t count, const Scalar& scale, void* out, Dtype out_dtype,
                   const Queue& queue) {
  return with_float(out_dtype, [&](auto element) {
    using T = decltype(element);
    return for_fours(count, CodeValues<T>{codes, scale, static_cast<T*>(out)}, queue);
  });
}

Status mask_clipped(float* grad, const float* w, std::int64_t count, const Scalar& scale, const CodeBounds& codes,
                    const Queue& queue) {
  return for_fours(count, MaskClipped{grad, w, scale, codes}, queue);
}

Status quantizer_backward(float* up, const float* xs, std::int64_t count, const Scalar& scale, const CodeBounds& codes,
                          const StepRule& rule, float* grad_scale, void* workspace, const Queue& queue) {
  return reduce<Terms>(count, QuantizerBackward{up, xs, scale, codes, rule},
                       StoreScaleGrad{scale, rule.denominator, grad_scale}, workspace, queue);
}

Status sign_values(const void* t, Dtype dtype, std::int64_t count, const Scalar& scale, void* out, Dtype out_dtype,
                   const Queue& queue) {
  return with_float(out_dtype, [&](auto element) {
    using T = decltype(element);
    T* const to = static_cast<T*>(out);
    if (dtype == Dtype::s8)
      return for_fours(count, SignValues<std::int8_t, T>{static_cast<const std::int8_t*>(t), scale, to}, queue);
    return with_float(dtype, [&](auto from) {
      using From = decltype(from);
      return for_fours(count, SignValues<From, T>{static_cast<const From*>(t), scale, to}, queue);
    });
  });
}

Status sign_backward(float* up, const float* xs, std::int64_t count, const Scalar& scale_a, const Scalar& scale_w,
                     double denominator, float* grad_scale, void* workspace, const Queue& queue) {
  return reduce<Terms>(count, SignBackward{up, xs, scale_a, scale_w}, StoreScaleGrad{scale_a, denominator, grad_scale},
                       workspace, queue);
}

}  // namespace bie::kernels::cuda
