#include "bie/kernels/cuda/diode_mix.h"

#include <algorithm>
#include <type_traits>

#include "kernels/arithmetic/diode_mix.h"
#include "kernels/arithmetic/random.h"
#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/fours.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bie::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr std::int64_t chunk = 4096;  // elements of one block

/// The parameters of one launch. Tensor i has the blocks from first_block[i] to first_block[i + 1].
struct Batch {
  DiodeMixTensor tensor[diode_mix_tensors];
  int first_block[diode_mix_tensors + 1];
  int count;
};
static_assert(sizeof(Batch) + sizeof(AdamNumbers) + 8 <= 4096, "a kernel has 4 KiB of parameters");

/// The tensor of this block: the last one that begins at or before it.
__device__ int tensor_of_block(const Batch& batch) {
  const int block = static_cast<int>(blockIdx.x);
  int low = 0, high = batch.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (batch.first_block[middle] <= block ? low : high) = middle;
  }
  return low;
}

template <class Step>
__global__ void __launch_bounds__(threads) step_kernel(const __grid_constant__ Batch batch, const Step step) {
  const int index = tensor_of_block(batch);
  const DiodeMixTensor& t = batch.tensor[index];
  if (t.left_out != nullptr && *t.left_out != 0) return;
  const std::int64_t begin = (std::int64_t{blockIdx.x} - batch.first_block[index]) * chunk;
  const std::int64_t end = begin + chunk < t.count ? begin + chunk : t.count;
  for (std::int64_t first = begin + 4 * threadIdx.x; first < end; first += 4 * threads) step(t, first);
}

/// Sets the mark of every tensor whose gradient holds what Found::met() says. One thread of a block reads and writes
/// it, and a block whose tensor has its mark reads nothing else: all blocks want the same few words.
template <class Found>
__global__ void __launch_bounds__(threads) mark_kernel(const __grid_constant__ Batch batch, std::int32_t* marks) {
  const int index = tensor_of_block(batch);
  const DiodeMixTensor& t = batch.tensor[index];
  std::int32_t* const mark = marks + index;
  const bool marked = threadIdx.x == 0 && *static_cast<volatile std::int32_t*>(mark) == Found::mark;
  if (__syncthreads_or(marked) != 0) return;
  const std::int64_t begin = (std::int64_t{blockIdx.x} - batch.first_block[index]) * chunk;
  const std::int64_t end = begin + chunk < t.count ? begin + chunk : t.count;
  bool met = false;
  for (std::int64_t first = begin + 4 * threadIdx.x; first < end; first += 4 * threads) {
    const auto g = load_four(static_cast<const typename Found::Gradient*>(t.grad), first, t.count);
#pragma unroll
    for (int j = 0; j < 4; ++j) met = met || Found::met(g.at[j]);
  }
  if (__syncthreads_or(met) != 0 && threadIdx.x == 0) *mark = Found::mark;  // whoever else writes it writes the same
}

/// queued(batch, blocks, done) for all tensors, in as few launches as their number allows; the batch's first tensor is
/// number `done`.
template <class Launch>
Status run(const DiodeMixTensor* tensors, int count, const Launch& queued) {
  for (int done = 0; done < count;) {
    Batch batch;
    std::int64_t blocks = 0;
    batch.count = 0;
    while (done + batch.count < count && batch.count < diode_mix_tensors) {
      const DiodeMixTensor& next = tensors[done + batch.count];
      const std::int64_t more = (next.count + chunk - 1) / chunk;
      if (batch.count > 0 && blocks + more > INT32_MAX) break;
      if (more > INT32_MAX) return Status::bad_shape;
      batch.tensor[batch.count] = next;
      batch.first_block[batch.count++] = static_cast<int>(blocks);
      blocks += more;
    }
    batch.first_block[batch.count] = static_cast<int>(blocks);
    const Status status = queued(batch, blocks, done);
    if (status != Status::ok) return status;
    done += batch.count;
  }
  return Status::ok;
}

template <class Step>
Status run_step(const DiodeMixTensor* tensors, int count, const Step& step, const Queue& queue) {
  return run(tensors, count, [&](const Batch& batch, std::int64_t blocks, int) {
    return launch(step_kernel<Step>, blocks, threads, 0, queue, batch, step);
  });
}

/// A stored moment: float32, or bfloat16 rounded at random.
template <class M>
__device__ M stored(float value, std::uint32_t random) {
  if constexpr (std::is_same_v<M, float>)
    return value;
  else
    return __ushort_as_bfloat16(bf16_at_random(value, random));
}

/// Reads and keeps what every kind of step has four of.
template <class G, class M>
struct State {
  Four<G> g;
  Four<M> l, s;

  __device__ State(const DiodeMixTensor& t, std::int64_t first)
      : g(load_four(static_cast<const G*>(t.grad), first, t.count)),
        l(load_four(static_cast<const M*>(t.l), first, t.count)),
        s(load_four(static_cast<const M*>(t.s), first, t.count)) {}

  __device__ void set(int j, float new_l, float new_s, std::uint64_t random) {
    l.at[j] = stored<M>(new_l, static_cast<std::uint32_t>(random));
    s.at[j] = stored<M>(new_s, static_cast<std::uint32_t>(random >> 16));
  }
  __device__ void keep(const DiodeMixTensor& t, std::int64_t first) const {
    store_four(static_cast<M*>(t.l), first, t.count, l);
    store_four(static_cast<M*>(t.s), first, t.count, s);
  }
};

template <class P, class M>
struct FloatStep {
  AdamNumbers o;

  __device__ void operator()(const DiodeMixTensor& t, std::int64_t first) const {
    State<P, M> state(t, first);
    Four<P> w = load_four(static_cast<const P*>(t.param), first, t.count);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float wide = widen(w.at[j]), l = widen(state.l.at[j]), s = widen(state.s.at[j]);
      adam(o, t.rate, widen(state.g.at[j]), &wide, &l, &s);
      w.at[j] = narrow<P>(wide);
      state.set(j, l, s, std::is_same_v<M, float> ? 0 : random_bits(t.random, first + j));
    }
    state.keep(t, first);
    store_four(static_cast<P*>(t.param), first, t.count, w);
  }
};

template <class G, class M>
struct CodeStep {
  AdamNumbers o;

  __device__ void operator()(const DiodeMixTensor& t, std::int64_t first) const {
    State<G, M> state(t, first);
    Four<std::int8_t> q = load_four(static_cast<const std::int8_t*>(t.param), first, t.count);
    const float scale = value_of(t.scale), next = value_of(t.next);
    const float hi = static_cast<float>((1 << (t.bits - 1)) - 1), lo = -hi - 1;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float w = static_cast<float>(q.at[j]) * scale, l = widen(state.l.at[j]), s = widen(state.s.at[j]);
      adam(o, t.rate, widen(state.g.at[j]), &w, &l, &s);
      const std::uint64_t random = random_bits(t.random, first + j);
      q.at[j] = static_cast<std::int8_t>(rounded_at_random(w / next, lo, hi, uniform(random)));
      state.set(j, l, s, random);
    }
    state.keep(t, first);
    store_four(static_cast<std::int8_t*>(t.param), first, t.count, q);
  }
};

template <class G, class M>
struct SignStep {
  SignNumbers o;

  __device__ void operator()(const DiodeMixTensor& t, std::int64_t first) const {
    State<G, M> state(t, first);
    Four<std::int8_t> w = load_four(static_cast<const std::int8_t*>(t.param), first, t.count);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float l = widen(state.l.at[j]), s = widen(state.s.at[j]);
      sign_vote(o, widen(state.g.at[j]), &l, &s);
      w.at[j] = static_cast<std::int8_t>(with_sign(w.at[j], s > 0 ? -1 : 0));
      state.set(j, l, s, std::is_same_v<M, float> ? 0 : random_bits(t.random, first + j));
    }
    state.keep(t, first);
    store_four(static_cast<std::int8_t*>(t.param), first, t.count, w);
  }
};

struct NotFinite {
  using Gradient = float;
  static constexpr std::int32_t mark = 1;
  static __device__ bool met(float g) { return !isfinite(g); }
};

struct NotZero {
  using Gradient = std::int8_t;
  static constexpr std::int32_t mark = 0;
  static __device__ bool met(std::int8_t g) { return g != 0; }
};

struct Magnitudes {
  long long sum;
  __device__ static Magnitudes none() { return {0}; }
  __device__ void add(const Magnitudes& other) { sum += other.sum; }
};

struct TakeCode {
  const std::int8_t* codes;
  __device__ void operator()(std::int64_t i, Magnitudes& total) const {
    total.sum += codes[i] < 0 ? -codes[i] : codes[i];
  }
};

struct StoreRenewed {
  std::int64_t count;
  Scalar scale;
  double mean_to_step;
  const std::int32_t* left_out;
  float* next;
  __device__ void operator()(const Magnitudes& total) const {
    const float now = value_of(scale);
    *next = left_out == nullptr || *left_out == 0 ? renewed(total.sum, count, now, mean_to_step) : now;
  }
};

template <class M>
struct FirstMoment {
  const std::int8_t* signs;
  std::uint64_t random;
  M* moment;

  __device__ void operator()(std::int64_t first, std::int64_t count) const {
    const Four<std::int8_t> w = load_four(signs, first, count);
    Four<M> to;
#pragma unroll
    for (int j = 0; j < 4; ++j) to.at[j] = narrow<M>(first_moment(w.at[j], uniform(random_bits(random, first + j))));
    store_four(moment, first, count, to);
  }
};

/// body(M{}) for the dtype of moments.
template <class Body>
Status with_moments(Dtype dtype, const Body& body) {
  return dtype == Dtype::bf16 ? body(__nv_bfloat16{}) : body(float{});
}

/// body(G{}, M{}) for an integer weight.
template <class Body>
Status with_state(Dtype grad, Dtype moments, const Body& body) {
  return with_moments(moments, [&](auto m) { return grad == Dtype::s8 ? body(std::int8_t{}, m) : body(float{}, m); });
}

}  // namespace

Status diode_mix_floats(const DiodeMixTensor* tensors, int count, Dtype param, Dtype moments, const AdamNumbers& o,
                        const Queue& queue) {
  return with_float(param, [&](auto p) {
    return with_moments(
        moments, [&](auto m) { return run_step(tensors, count, FloatStep<decltype(p), decltype(m)>{o}, queue); });
  });
}

Status diode_mix_codes(const DiodeMixTensor* tensors, int count, Dtype grad, Dtype moments, const AdamNumbers& o,
                       const Queue& queue) {
  return with_state(grad, moments, [&](auto g, auto m) {
    return run_step(tensors, count, CodeStep<decltype(g), decltype(m)>{o}, queue);
  });
}

Status diode_mix_signs(const DiodeMixTensor* tensors, int count, Dtype grad, Dtype moments, const SignNumbers& o,
                       const Queue& queue) {
  return with_state(grad, moments, [&](auto g, auto m) {
    return run_step(tensors, count, SignStep<decltype(g), decltype(m)>{o}, queue);
  });
}

Status mark_left_out(const DiodeMixTensor* tensors, int count, Dtype grad, std::int32_t* left_out, const Queue& queue) {
  const auto kernel = grad == Dtype::s8 ? mark_kernel<NotZero> : mark_kernel<NotFinite>;
  return run(tensors, count, [&](const Batch& batch, std::int64_t blocks, int done) {
    return launch(kernel, blocks, threads, 0, queue, batch, left_out + done);
  });
}

Status renewed_scale(const DiodeMixTensor& t, double mean_to_step, float* next, void* workspace, const Queue& queue) {
  return reduce<Magnitudes>(t.count, TakeCode{static_cast<const std::int8_t*>(t.param)},
                            StoreRenewed{t.count, t.scale, mean_to_step, t.left_out, next}, workspace, queue);
}

Status diode_mix_first_moment(const std::int8_t* signs, std::int64_t count, std::uint64_t random, void* moment,
                              Dtype dtype, const Queue& queue) {
  return with_moments(dtype, [&](auto m) {
    using M = decltype(m);
    return for_fours(count, FirstMoment<M>{signs, random, static_cast<M*>(moment)}, queue);
  });
}

}  // namespace bie::kernels::cuda
