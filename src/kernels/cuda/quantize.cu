#include "bie/kernels/cuda/quantize.h"

#include <cmath>

#include "kernels/arithmetic/codes.h"
#include "kernels/cuda/extremes.cuh"
#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/fours.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bie::kernels::cuda {
namespace {

// Means.

struct Sum {
  double sum;
  __device__ static Sum none() { return {0}; }
  __device__ void add(const Sum& other) { sum += other.sum; }
};

template <class T>
struct TakeMagnitude {
  const T* x;
  __device__ void operator()(std::int64_t i, Sum& total) const { total.sum += fabsf(widen(x[i])); }
};

__device__ float step_from(const Sum& total, std::int64_t count, double c) {
  const float mean = count == 0 ? 0.0f : static_cast<float>(total.sum / static_cast<double>(count));
  const float step = static_cast<float>(static_cast<double>(mean) * c);
  return isfinite(step) ? step : NAN;
}

struct StoreStep {
  std::int64_t count;
  double c;
  float floor;
  float* out;
  __device__ void operator()(const Sum& total) const { *out = lifted(step_from(total, count, c), floor); }
};

struct StoreFirstStep {
  std::int64_t count;
  double c;
  float* scale;
  __device__ void operator()(const Sum& total) const {
    const float step = step_from(total, count, c);
    if (*scale == 0 && isfinite(step)) *scale = step;  // a batch with NaN leaves it to the next
  }
};

template <class Finish>
Status reduce_magnitudes(const void* x, Dtype dtype, std::int64_t count, const Finish& finish, void* workspace,
                         const Queue& queue) {
  return with_float(dtype, [&](auto element) {
    using T = decltype(element);
    return reduce<Sum>(count, TakeMagnitude<T>{static_cast<const T*>(x)}, finish, workspace, queue);
  });
}

// Codes by division.

template <class T>
struct Quantize {
  const T* x;
  Scalar scale;
  float floor, lo, hi;
  std::int8_t* q;
  float* poison;

  __device__ void operator()(std::int64_t first, std::int64_t count) const {
    const float step = lifted(value_of(scale), floor);
    const Four<T> from = load_four(x, first, count);
    Four<std::int8_t> to;
    bool finite = true;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float v = widen(from.at[j]);
      const float code = clamped(rintf(v / step), lo, hi);
      to.at[j] = static_cast<std::int8_t>(isnan(code) ? 0 : static_cast<int>(code));
      finite &= isfinite(v);
    }
    if (poison != nullptr && !finite) *poison = NAN;  // whoever else writes it writes the same
    store_four(q, first, count, to);
  }
};

// Codes by a factor that is bound / amax, or 0 where every code is 0.

template <class T>
struct TakeExtremes {
  const T* x;
  Scalar gain;
  __device__ void operator()(std::int64_t i, Extremes& total) const {
    total.add(Extremes::of(widen(x[i]) * value_of(gain)));
  }
};

struct StoreAmaxScale {
  bool given;
  Scalar amax;
  AmaxRange range;
  AmaxFactor* factor;
  float* scale;

  __device__ void operator()(const Extremes& x) const {
    const float most = given ? value_of(amax) : x.max;
    if (!x.all_finite || !isfinite(most) || most < 0 || (range.is_unsigned && x.min < 0)) {
      factor->by = *scale = NAN;
      return;
    }
    *factor = amax_factor(range.bound, most);
    *scale = amax_scale(most, *factor);
  }
};

template <class T>
struct AmaxQuantize {
  const T* x;
  const AmaxFactor* factor;
  AmaxRange range;
  T* q;

  __device__ void operator()(std::int64_t first, std::int64_t count) const {
    const AmaxFactor by = *factor;
    const Four<T> from = load_four(x, first, count);
    Four<T> to;
#pragma unroll
    for (int j = 0; j < 4; ++j) to.at[j] = narrow<T>(amax_code(widen(from.at[j]), by, range.lo, range.bound));
    store_four(q, first, count, to);
  }
};

constexpr int grad_blocks = 1024;

/// Every block finds the factor from the totals. The last elements are turned first: of those that the kernel before
/// wrote they are still in the cache.
template <class T>
__global__ void __launch_bounds__(total_threads)
    int8_grad_pass(const T* g, std::int64_t count, const Scalar gain, const Extremes* totals, int total_count,
                   std::int8_t* q) {
  __shared__ AmaxFactor factor;
  Extremes mine = Extremes::none();
  for (int i = threadIdx.x; i < total_count; i += total_threads) mine.add(totals[i]);
  mine = of_block(mine);
  if (threadIdx.x == 0) factor = grad_factor(mine.min, mine.max, mine.all_finite != 0);
  __syncthreads();
  const AmaxFactor by = factor;
  const float before = value_of(gain);
  const std::int64_t turn = std::int64_t{4} * total_threads, turns = (count + turn - 1) / turn;
  for (std::int64_t i = turns - 1 - blockIdx.x; i >= 0; i -= gridDim.x) {
    const std::int64_t first = i * turn + 4 * threadIdx.x;
    if (first >= count) continue;
    const Four<T> from = load_four(g, first, count);
    Four<std::int8_t> to;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float v = widen(from.at[j]) * before;
      to.at[j] = static_cast<std::int8_t>(by.by == 0 ? 0 : grad_code(v, by, -127, 127));  // 0 where v may be NaN
    }
    store_four(q, first, count, to);
  }
}

// Binary weights.

struct Moments {
  double sum, magnitude;
  float max;
  __device__ static Moments none() { return {0, 0, -INFINITY}; }
  __device__ void add(const Moments& other) {
    sum += other.sum;
    magnitude += other.magnitude;
    max = fmaxf(max, other.max);
  }
};

template <class T>
struct TakeMoments {
  const T* w;
  __device__ void operator()(std::int64_t i, Moments& total) const {
    const float v = widen(w[i]);
    total.add({v, fabsf(v), v});
  }
};

struct Centring {
  float centre;
  AmaxFactor factor;
};

struct StoreCentring {
  std::int64_t count;
  Centring* out;
  float* scale;

  __device__ void operator()(const Moments& w) const {
    const double n = static_cast<double>(count);
    const float mean = static_cast<float>(w.magnitude / n);
    *scale = isfinite(mean) ? mean : NAN;
    out->centre = static_cast<float>(w.sum / n);
    out->factor = centred_factor(w.max, out->centre);
  }
};

template <class T>
struct BinaryInit {
  const T* w;
  const Centring* centring;
  std::int8_t* q;

  __device__ void operator()(std::int64_t first, std::int64_t count) const {
    const Centring by = *centring;
    const Four<T> from = load_four(w, first, count);
    Four<std::int8_t> to;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      to.at[j] = static_cast<std::int8_t>(centred_code(widen(from.at[j]), by.centre, by.factor));
    store_four(q, first, count, to);
  }
};

}  // namespace

Status mean_scale(const void* x, Dtype dtype, std::int64_t count, double c, float floor, float* out, void* workspace,
                  const Queue& queue) {
  return reduce_magnitudes(x, dtype, count, StoreStep{count, c, floor, out}, workspace, queue);
}

Status init_scale(const void* x, Dtype dtype, std::int64_t count, double c, float* scale, void* workspace,
                  const Queue& queue) {
  return reduce_magnitudes(x, dtype, count, StoreFirstStep{count, c, scale}, workspace, queue);
}

Status quantize_codes(const void* x, Dtype dtype, std::int64_t count, const Scalar& scale, float floor, int lo, int hi,
                      std::int8_t* q, float* poison, const Queue& queue) {
  return with_float(dtype, [&](auto element) {
    using T = decltype(element);
    return for_fours(
        count,
        Quantize<T>{static_cast<const T*>(x), scale, floor, static_cast<float>(lo), static_cast<float>(hi), q, poison},
        queue);
  });
}

Status amax_quantize(const void* x, Dtype dtype, std::int64_t count, const Scalar* amax, const AmaxRange& range,
                     void* q, float* scale, void* workspace, const Queue& queue) {
  return with_float(dtype, [&](auto element) {
    using T = decltype(element);
    const T* from = static_cast<const T*>(x);
    AmaxFactor* factor = result_in<AmaxFactor>(workspace);
    const StoreAmaxScale store{amax != nullptr, amax != nullptr ? *amax : Scalar{}, range, factor, scale};
    const Status status = reduce<Extremes>(count, TakeExtremes<T>{from, {nullptr, 1}}, store, workspace, queue);
    if (status != Status::ok) return status;
    return for_fours(count, AmaxQuantize<T>{from, factor, range, static_cast<T*>(q)}, queue);
  });
}

Status int8_grad(const void* g, Dtype dtype, std::int64_t count, const Scalar& gain, std::int8_t* q, int totals,
                 void* workspace, const Queue& queue) {
  return with_float(dtype, [&](auto element) {
    using T = decltype(element);
    const T* from = static_cast<const T*>(g);
    Extremes* const partials = static_cast<Extremes*>(workspace);
    int found = totals;
    if (totals == 0) {
      found = reduction_blocks(count);
      const Status status = launch(partial_totals<Extremes, TakeExtremes<T>>, found, total_threads, 0, queue, count,
                                   TakeExtremes<T>{from, gain}, partials);
      if (status != Status::ok) return status;
    }
    return launch(int8_grad_pass<T>, blocks_for((count + 3) / 4, total_threads, grad_blocks), total_threads, 0, queue,
                  from, count, gain, partials, found, q);
  });
}

Status binary_init(const void* w, Dtype dtype, std::int64_t count, std::int8_t* q, float* scale, void* workspace,
                   const Queue& queue) {
  return with_float(dtype, [&](auto element) {
    using T = decltype(element);
    const T* from = static_cast<const T*>(w);
    Centring* centring = result_in<Centring>(workspace);
    const Status status =
        reduce<Moments>(count, TakeMoments<T>{from}, StoreCentring{count, centring, scale}, workspace, queue);
    if (status != Status::ok) return status;
    return for_fours(count, BinaryInit<T>{from, centring, q}, queue);
  });
}

}  // namespace bie::kernels::cuda
