// DiodeMix, one step of one parameter: floats, codes and signs (numerics.md section 10).
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "bie/ops.h"
#include "ops/bridge.h"
#include "ops/quantizers.h"
#include "ops/random.h"
#include "ops/vector_clones.h"

namespace bie::ops {
namespace {

constexpr std::int64_t grain = 1 << 14;

template <class M>
M stored(float value, std::uint32_t random) {
  if constexpr (std::is_same_v<M, float>) {
    return value;
  } else {  // bfloat16 is a float32 without its low 16 bits: add a random number below them and cut
    if (!std::isfinite(value)) return c10::BFloat16(value);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    return c10::BFloat16(static_cast<std::uint16_t>((bits + (random & 0xffffu)) >> 16), c10::BFloat16::from_bits());
  }
}

// A step goes through its parameter in chunks that stay in the first-level cache: each is widened to float32 where it
// is not, moved by passes that the compiler makes vectors of, and narrowed again.
constexpr std::int64_t chunk = 256;
using Floats = float[chunk];

template <class T>
float* widened(T* from, std::int64_t count, Floats& buffer) {
  if constexpr (std::is_same_v<T, float>) {
    return from;
  } else {
    std::copy_n(from, count, buffer);
    return buffer;
  }
}

template <class T>
const float* widened(const T* from, std::int64_t count, Floats& buffer) {
  if constexpr (std::is_same_v<T, float>) {
    return from;
  } else {
    std::copy_n(from, count, buffer);
    return buffer;
  }
}

/// Adam's constants in this step.
struct Adam {
  float b1, b2, eps, rate, decay;

  explicit Adam(const DiodeMixStep& o)
      : b1(static_cast<float>(o.beta1)),
        b2(static_cast<float>(o.beta2)),
        eps(static_cast<float>(o.eps)),
        decay(static_cast<float>(o.lr * o.weight_decay)) {
    double step = o.lr;
    const double count = static_cast<double>(o.step);
    if (o.correct_bias) step *= std::sqrt(1 - std::pow(o.beta2, count)) / (1 - std::pow(o.beta1, count));
    rate = static_cast<float>(step);
  }
};

BIE_VECTOR_CLONES void adam_pass(float* w, float* l, float* s, const float* g, std::int64_t count, Adam adam) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float a = adam.b1 * l[i] + (1 - adam.b1) * g[i];
    const float b = adam.b2 * s[i] + (1 - adam.b2) * g[i] * g[i];
    const float p = w[i] - adam.rate * a / (std::sqrt(b) + adam.eps);
    l[i] = a;
    s[i] = b;
    w[i] = p - adam.decay * p;
  }
}

/// v = clamp(w / scale, lo, hi) goes to the code below it or, with the probability of its distance to that, to the one
/// above.
BIE_VECTOR_CLONES void round_pass(std::int8_t* q, const float* w, std::int64_t count, float scale, float lo, float hi,
                                  const Stream& stream, std::int64_t first) {
  std::int32_t random[chunk], codes[chunk];
  for (std::int64_t i = 0; i < count; ++i) random[i] = static_cast<std::int32_t>(stream.bits(first + i) >> 40);
  for (std::int64_t i = 0; i < count; ++i) {
    const float u = static_cast<float>(random[i]) * 0x1p-24f;
    const float v = w[i] / scale, above = v > lo ? v : lo, clamped = above < hi ? above : hi;
    const std::int32_t cut = static_cast<std::int32_t>(clamped);  // towards 0
    const std::int32_t below = cut - (static_cast<float>(cut) > clamped ? 1 : 0);
    codes[i] = below + (u >= 1 - (clamped - static_cast<float>(below)) ? 1 : 0);
  }
  for (std::int64_t i = 0; i < count; ++i) q[i] = static_cast<std::int8_t>(codes[i]);
}

/// l = lerp(l, g, d1), s = lerp(s, lr * sgn(l), d2).
BIE_VECTOR_CLONES void vote_pass(float* l, float* s, const float* g, std::int64_t count, float d1, float d2, float lr) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float a = l[i] + d1 * (g[i] - l[i]);
    const float vote = (a > 0 ? lr : 0.0f) - (a < 0 ? lr : 0.0f);
    l[i] = a;
    s[i] += d2 * (vote - s[i]);
  }
}

/// Gives every weight the sign of -sgn(s); 0 counts as +1.
BIE_VECTOR_CLONES void sign_pass(std::int8_t* w, const float* s, std::int64_t count) {
  std::int32_t negative[chunk];
  for (std::int64_t i = 0; i < count; ++i) negative[i] = s[i] > 0 ? -1 : 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t value = w[i], magnitude = value < 0 ? -value : value;
    const std::int32_t moved = (magnitude ^ negative[i]) - negative[i];
    w[i] = static_cast<std::int8_t>(moved > 127 ? 127 : moved);
  }
}

/// A chunk of a parameter: its place, its moments and its gradient as float32.
struct Chunk {
  std::int64_t first, count;
  float *l, *s;
  const float* g;
};

/// Calls body with every chunk and keeps the moments that it leaves.
template <class G, class M, class Body>
void in_chunks(std::int64_t size, const G* g, M* l, M* s, const Stream& stream, const Body& body) {
  at::parallel_for(0, size, grain, [&](std::int64_t begin, std::int64_t end) {
    Floats wide_l, wide_s, wide_g;
    for (std::int64_t at = begin; at < end; at += chunk) {
      const std::int64_t n = std::min(chunk, end - at);
      const Chunk c{at, n, widened(l + at, n, wide_l), widened(s + at, n, wide_s), widened(g + at, n, wide_g)};
      body(c);
      if constexpr (!std::is_same_v<M, float>)
        for (std::int64_t i = 0; i < n; ++i) {
          const std::uint64_t random = stream.bits(at + i);
          l[at + i] = stored<M>(c.l[i], static_cast<std::uint32_t>(random));
          s[at + i] = stored<M>(c.s[i], static_cast<std::uint32_t>(random >> 16));
        }
    }
  });
}

template <class P, class M>
void step_float(P* p, const P* g, std::int64_t count, M* l, M* s, const Adam& adam, const Stream& stream) {
  in_chunks(count, g, l, s, stream, [&](const Chunk& c) {
    Floats wide;
    float* const w = widened(p + c.first, c.count, wide);
    adam_pass(w, c.l, c.s, c.g, c.count, adam);
    if constexpr (!std::is_same_v<P, float>) std::copy_n(w, c.count, p + c.first);
  });
}

template <class G, class M>
void step_codes(std::int8_t* q, const G* g, std::int64_t count, M* l, M* s, float scale, float next_scale, int bits,
                const Adam& adam, const Stream& stream) {
  const float hi = static_cast<float>((1 << (bits - 1)) - 1), lo = -hi - 1;
  in_chunks(count, g, l, s, stream, [&](const Chunk& c) {
    Floats w;
    for (std::int64_t i = 0; i < c.count; ++i) w[i] = static_cast<float>(q[c.first + i]) * scale;
    adam_pass(w, c.l, c.s, c.g, c.count, adam);
    round_pass(q + c.first, w, c.count, next_scale, lo, hi, stream, c.first);
  });
}

template <class G, class M>
void step_binary(std::int8_t* w, const G* g, std::int64_t count, M* l, M* s, const DiodeMixStep& o,
                 const Stream& stream) {
  const float d1 = static_cast<float>(1 - o.beta1), d2 = static_cast<float>(1 - o.beta2);
  in_chunks(count, g, l, s, stream, [&](const Chunk& c) {
    vote_pass(c.l, c.s, c.g, c.count, d1, d2, static_cast<float>(o.lr));
    sign_pass(w + c.first, c.s, c.count);
  });
}

/// The scale that codes of this mean would start with.
float renewed_scale(const at::Tensor& codes, float scale, int bits) {
  const std::int8_t* q = codes.const_data_ptr<std::int8_t>();
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < codes.numel(); ++i) sum += std::abs(static_cast<int>(q[i]));
  const double mean = static_cast<double>(sum) / static_cast<double>(codes.numel()) * scale;
  const float next = static_cast<float>((bits == 8 ? ops::q8_range : ops::q4_range).mean_to_step * mean);
  return next > 0 ? next : scale;
}

void check(const char* op, const DiodeMixStep& o) {
  const auto at_least_0 = [&](const char* name, double value) {
    TORCH_CHECK_VALUE(std::isfinite(value) && value >= 0, op, ": ", name, " is ", value, ", a number >= 0 is wanted");
  };
  TORCH_CHECK_VALUE(o.step >= 1, op, ": step is ", o.step, ", steps count from 1");
  at_least_0("lr", o.lr);
  at_least_0("eps", o.eps);
  at_least_0("weight_decay", o.weight_decay);
  for (const double beta : {o.beta1, o.beta2})
    TORCH_CHECK_VALUE(beta >= 0 && beta < 1, op, ": a beta is ", beta, ", a number in [0, 1) is wanted");
}

void check_moment(const char* op, const char* name, const at::Tensor& moment, const at::Tensor& param) {
  TORCH_CHECK_TYPE(moment.scalar_type() == at::kFloat || moment.scalar_type() == at::kBFloat16, op, ": ", name, " is ",
                   moment.scalar_type(), ", float32 or bfloat16 is wanted");
  TORCH_CHECK_VALUE(moment.sizes() == param.sizes() && moment.strides() == param.strides(), op, ": ", name, " is ",
                    moment.sizes(), " with strides ", moment.strides(), ", the parameter ", param.sizes(), " with ",
                    param.strides());
}

/// Everything dense and in one order of memory, so that element i of each is the same one.
void check(const char* op, const at::Tensor& param, const at::Tensor& grad, const at::Tensor& l, const at::Tensor& s) {
  TORCH_CHECK_VALUE(param.is_non_overlapping_and_dense(), op, ": the parameter is ", param.sizes(), " with strides ",
                    param.strides(), ", a dense tensor is wanted");
  TORCH_CHECK_VALUE(grad.sizes() == param.sizes(), op, ": the parameter is ", param.sizes(), ", its gradient ",
                    grad.sizes());
  check_moment(op, "exp_avg_l", l, param);
  check_moment(op, "exp_avg_s", s, param);
  TORCH_CHECK_TYPE(l.scalar_type() == s.scalar_type(), op, ": one moment is ", l.scalar_type(), ", the other ",
                   s.scalar_type());
}

void check_integers(const char* op, const at::Tensor& param) {
  TORCH_CHECK_TYPE(param.scalar_type() == at::kChar, op, ": the parameter is ", param.scalar_type(),
                   ", int8 is wanted");
}

/// The gradient in `type` and in the parameter's order of memory.
at::Tensor in_order(const at::Tensor& grad, const at::Tensor& param, at::ScalarType type) {
  if (grad.scalar_type() == type && grad.strides() == param.strides()) return grad;
  return at::empty_like(param, param.options().dtype(type).requires_grad(false)).copy_(grad);
}

template <class Body>
void with_moments(const at::Tensor& l, const at::Tensor& s, const Body& body) {
  if (l.scalar_type() == at::kFloat)
    body(l.mutable_data_ptr<float>(), s.mutable_data_ptr<float>());
  else
    body(l.mutable_data_ptr<c10::BFloat16>(), s.mutable_data_ptr<c10::BFloat16>());
}

/// An integer weight's gradient is int8 or float.
template <class Body>
void with_gradient(const at::Tensor& grad, const at::Tensor& param, const Body& body) {
  const bool integer = grad.scalar_type() == at::kChar;
  const at::Tensor same = in_order(grad, param, integer ? at::kChar : at::kFloat);
  if (integer)
    body(same.const_data_ptr<std::int8_t>());
  else
    body(same.const_data_ptr<float>());
}

Stream stream_of(const DiodeMixStep& o) {
  return {static_cast<std::uint64_t>(o.seed), static_cast<std::uint64_t>(o.stream), static_cast<std::uint64_t>(o.step)};
}

void float_step(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& l, const at::Tensor& s,
                const DiodeMixStep& o) {
  const char* op = "diode_mix_float_";
  check(op, o);
  check_float(op, "the parameter", param);
  check(op, param, grad, l, s);
  const at::NoGradGuard no_grad;
  const auto step = [&]<class P>(P* data) {
    const at::Tensor same = in_order(grad, param, param.scalar_type());
    with_moments(l, s, [&](auto* ml, auto* ms) {
      step_float(data, same.const_data_ptr<P>(), param.numel(), ml, ms, Adam(o), stream_of(o));
    });
  };
  switch (param.scalar_type()) {
    case at::kBFloat16: return step(param.mutable_data_ptr<c10::BFloat16>());
    case at::kHalf: return step(param.mutable_data_ptr<c10::Half>());
    default: return step(param.mutable_data_ptr<float>());
  }
}

void codes_step(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& l, const at::Tensor& s,
                const at::Tensor& scale_w, std::int64_t bits, bool renew_scale, const DiodeMixStep& o) {
  const char* op = "diode_mix_codes_";
  check(op, o);
  check_integers(op, param);
  check(op, param, grad, l, s);
  TORCH_CHECK_VALUE(bits == 4 || bits == 8, op, ": bits is ", bits, ", 4 or 8 is wanted");
  TORCH_CHECK_VALUE(scale_w.numel() == 1 && scale_w.scalar_type() == at::kFloat, op, ": scale_w is ", scale_w.sizes(),
                    " of ", scale_w.scalar_type(), ", one float32 is wanted");
  const at::NoGradGuard no_grad;
  const int width = static_cast<int>(bits);
  const float scale = scale_value(op, "scale_w", scale_w);
  const float next = renew_scale ? renewed_scale(param, scale, width) : scale;
  with_gradient(grad, param, [&](const auto* g) {
    with_moments(l, s, [&](auto* ml, auto* ms) {
      step_codes(param.mutable_data_ptr<std::int8_t>(), g, param.numel(), ml, ms, scale, next, width, Adam(o),
                 stream_of(o));
    });
  });
  if (renew_scale) scale_w.fill_(next);
}

void signs_step(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& l, const at::Tensor& s,
                const DiodeMixStep& o) {
  const char* op = "diode_mix_signs_";
  check(op, o);
  check_integers(op, param);
  check(op, param, grad, l, s);
  const at::NoGradGuard no_grad;
  with_gradient(grad, param, [&](const auto* g) {
    with_moments(l, s, [&](auto* ml, auto* ms) {
      step_binary(param.mutable_data_ptr<std::int8_t>(), g, param.numel(), ml, ms, o, stream_of(o));
    });
  });
}

at::Tensor first_moment_cpu(const at::Tensor& signs, at::ScalarType type, std::int64_t seed, std::int64_t stream) {
  const char* op = "diode_mix_first_moment";
  check_integers(op, signs);
  TORCH_CHECK_TYPE(type == at::kFloat || type == at::kBFloat16, op, ": a moment is float32 or bfloat16, not ", type);
  TORCH_CHECK_VALUE(signs.is_non_overlapping_and_dense(), op, ": the signs have strides ", signs.strides(),
                    ", a dense tensor is wanted");
  at::Tensor moment = at::empty_like(signs, signs.options().dtype(type).requires_grad(false));
  const Stream random(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(stream), 0);
  const std::int8_t* w = signs.const_data_ptr<std::int8_t>();
  const auto fill = [&]<class M>(M* s) {
    for (std::int64_t i = 0; i < signs.numel(); ++i)
      s[i] = static_cast<M>((w[i] < 0 ? 1e-3f : w[i] > 0 ? -1e-3f : 0.0f) * uniform(random.bits(i)));
  };
  if (type == at::kFloat)
    fill(moment.mutable_data_ptr<float>());
  else
    fill(moment.mutable_data_ptr<c10::BFloat16>());
  return moment;
}

at::Tensor first_moment_meta(const at::Tensor& signs, at::ScalarType type, std::int64_t, std::int64_t) {
  return at::empty_like(signs, signs.options().dtype(type).requires_grad(false));
}

void check_state_is_meta(const char* op, const at::Tensor& param, const at::Tensor& l, const at::Tensor& s) {
  check_meta(op, "the parameter", param);
  check_meta(op, "exp_avg_l", l);
  check_meta(op, "exp_avg_s", s);
}

// The operators as the dispatcher calls them.

using FloatSignature = void(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, std::int64_t,
                            double, double, double, double, double, bool, std::int64_t, std::int64_t);
using CodesSignature = void(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                            const at::Tensor&, std::int64_t, bool, std::int64_t, double, double, double, double, double,
                            bool, std::int64_t, std::int64_t);
using SignsSignature = void(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, std::int64_t,
                            double, double, double, std::int64_t, std::int64_t);
using FirstMomentSignature = at::Tensor(const at::Tensor&, at::ScalarType, std::int64_t, std::int64_t);

void float_cpu(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& l, const at::Tensor& s,
               std::int64_t step, double lr, double beta1, double beta2, double eps, double weight_decay,
               bool correct_bias, std::int64_t seed, std::int64_t stream) {
  float_step(param, grad, l, s, {step, lr, beta1, beta2, eps, weight_decay, correct_bias, seed, stream});
}

void codes_cpu(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& l, const at::Tensor& s,
               const at::Tensor& scale_w, std::int64_t bits, bool renew_scale, std::int64_t step, double lr,
               double beta1, double beta2, double eps, double weight_decay, bool correct_bias, std::int64_t seed,
               std::int64_t stream) {
  codes_step(param, grad, l, s, scale_w, bits, renew_scale,
             {step, lr, beta1, beta2, eps, weight_decay, correct_bias, seed, stream});
}

void signs_cpu(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& l, const at::Tensor& s,
               std::int64_t step, double lr, double beta1, double beta2, std::int64_t seed, std::int64_t stream) {
  signs_step(param, grad, l, s, {step, lr, beta1, beta2, 0, 0, false, seed, stream});
}

}  // namespace

void diode_mix_float_(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg_l,
                      const at::Tensor& exp_avg_s, const DiodeMixStep& o) {
  static const auto op = find_op<FloatSignature>("bie::diode_mix_float_");
  op.call(param, grad, exp_avg_l, exp_avg_s, o.step, o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.correct_bias,
          o.seed, o.stream);
}

void diode_mix_codes_(const at::Tensor& codes, const at::Tensor& grad, const at::Tensor& exp_avg_l,
                      const at::Tensor& exp_avg_s, const at::Tensor& scale_w, std::int64_t bits, bool renew_scale,
                      const DiodeMixStep& o) {
  static const auto op = find_op<CodesSignature>("bie::diode_mix_codes_");
  op.call(codes, grad, exp_avg_l, exp_avg_s, scale_w, bits, renew_scale, o.step, o.lr, o.beta1, o.beta2, o.eps,
          o.weight_decay, o.correct_bias, o.seed, o.stream);
}

void diode_mix_signs_(const at::Tensor& signs, const at::Tensor& grad, const at::Tensor& exp_avg_l,
                      const at::Tensor& exp_avg_s, const DiodeMixStep& o) {
  static const auto op = find_op<SignsSignature>("bie::diode_mix_signs_");
  op.call(signs, grad, exp_avg_l, exp_avg_s, o.step, o.lr, o.beta1, o.beta2, o.seed, o.stream);
}

at::Tensor diode_mix_first_moment(const at::Tensor& signs, at::ScalarType dtype, std::int64_t seed,
                                  std::int64_t stream) {
  static const auto op = find_op<FirstMomentSignature>("bie::diode_mix_first_moment");
  return op.call(signs, dtype, seed, stream);
}

}  // namespace bie::ops

TORCH_LIBRARY_IMPL(bie, CPU, m) {
  m.impl("diode_mix_float_", bie::ops::float_cpu);
  m.impl("diode_mix_codes_", bie::ops::codes_cpu);
  m.impl("diode_mix_signs_", bie::ops::signs_cpu);
  m.impl("diode_mix_first_moment", bie::ops::first_moment_cpu);
}

// A step gives nothing back, so there is nothing to infer.
TORCH_LIBRARY_IMPL(bie, Meta, m) {
  using bie::ops::check_state_is_meta;
  m.impl("diode_mix_float_", [](const at::Tensor& param, const at::Tensor&, const at::Tensor& l, const at::Tensor& s,
                                std::int64_t, double, double, double, double, double, bool, std::int64_t,
                                std::int64_t) { check_state_is_meta("diode_mix_float_", param, l, s); });
  m.impl("diode_mix_codes_", [](const at::Tensor& param, const at::Tensor&, const at::Tensor& l, const at::Tensor& s,
                                const at::Tensor& scale_w, std::int64_t, bool, std::int64_t, double, double, double,
                                double, double, bool, std::int64_t, std::int64_t) {
    check_state_is_meta("diode_mix_codes_", param, l, s);
    bie::ops::check_meta("diode_mix_codes_", "scale_w", scale_w);
  });
  m.impl("diode_mix_signs_",
         [](const at::Tensor& param, const at::Tensor&, const at::Tensor& l, const at::Tensor& s, std::int64_t, double,
            double, double, std::int64_t, std::int64_t) { check_state_is_meta("diode_mix_signs_", param, l, s); });
  m.impl("diode_mix_first_moment", bie::ops::first_moment_meta);
}
