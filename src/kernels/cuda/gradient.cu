#include "bie/kernels/cuda/gradient.h"

#include "kernels/arithmetic/estimator.h"
#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/fours.cuh"

namespace bie::kernels::cuda {
namespace {

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
    for (int j = 0; j < 4; ++j) v.at[j] = narrow<T>(round_clamped(from.at[j] / step, codes.lo, codes.hi) * factor);
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
    for (int j = 0; j < 4; ++j) g.at[j] *= inside_range(weight.at[j] / step, codes.lo, codes.hi);
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

Status sign_values(const void* t, Dtype dtype, std::int64_t count, const Scalar& scale, void* out, Dtype out_dtype,
                   const Queue& queue) {
  return with_value(out_dtype, [&](auto element) {
    return with_value(dtype, [&](auto from) {
      using From = decltype(from);
      using T = decltype(element);
      return for_fours(count, SignValues<From, T>{static_cast<const From*>(t), scale, static_cast<T*>(out)}, queue);
    });
  });
}

}  // namespace bie::kernels::cuda
