#include "bie/optim/diode_mix.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <type_traits>

#include "nn/finite.h"
#include "ops/quantizers.h"
#include "ops/vector_clones.h"
#include "optim/random.h"

namespace bie::optim {
namespace {

constexpr std::int64_t grain = 1 << 14;

void check(const DiodeMixOptions& o) {
  const auto at_least_0 = [](const char* name, double value) {
    TORCH_CHECK_VALUE(std::isfinite(value) && value >= 0, "DiodeMix: ", name, " is ", value,
                      ", a number >= 0 is wanted");
  };
  at_least_0("lr", o.lr);
  at_least_0("eps", o.eps);
  at_least_0("weight_decay", o.weight_decay);
  at_least_0("renew_scale_every", static_cast<double>(o.renew_scale_every));
  for (const double beta : {o.beta1, o.beta2})
    TORCH_CHECK_VALUE(beta >= 0 && beta < 1, "DiodeMix: a beta is ", beta, ", a number in [0, 1) is wanted");
}

void check(const Param& param, const std::string& key) {
  const at::Tensor& t = param.tensor;
  TORCH_CHECK_VALUE(t.defined() && t.is_contiguous() && t.is_cpu(), "DiodeMix: the parameter ", key,
                    " is not a dense tensor on the CPU");
  const at::ScalarType type = t.scalar_type();
  const bool is_float = type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
  TORCH_CHECK_VALUE(is_float || type == at::kChar, "DiodeMix: the parameter ", key, " is ", type,
                    ", float32, bfloat16, float16 or int8 is wanted");
  TORCH_CHECK_VALUE(is_float || param.bits == 1 || param.bits == 4 || param.bits == 8, "DiodeMix: the parameter ", key,
                    " is int8 and says ", param.bits, " bits; 1, 4 or 8 are wanted (see optim::parameters)");
  TORCH_CHECK_VALUE(
      is_float || param.bits == 1 ||
          (param.scale_w.defined() && param.scale_w.numel() == 1 && param.scale_w.scalar_type() == at::kFloat),
      "DiodeMix: the codes ", key, " want a scale_w of one float32");
}

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
  if constexpr (std::is_same_v<T, float>) return from;
  std::copy_n(from, count, buffer);
  return buffer;
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

/// Adam's constants in step t.
struct Adam {
  float b1, b2, eps, rate, decay;

  Adam(std::int64_t t, const DiodeMixOptions& o)
      : b1(static_cast<float>(o.beta1)),
        b2(static_cast<float>(o.beta2)),
        eps(static_cast<float>(o.eps)),
        decay(static_cast<float>(o.lr * o.weight_decay)) {
    double step = o.lr;
    const double count = static_cast<double>(t);
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
void step_binary(std::int8_t* w, const G* g, std::int64_t count, M* l, M* s, const DiodeMixOptions& o,
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

template <class M>
void step_typed(const Param& param, const at::Tensor& grad, const at::Tensor& l, const at::Tensor& s, std::int64_t t,
                const DiodeMixOptions& o, const Stream& stream) {
  const at::Tensor& p = param.tensor;
  const std::int64_t count = p.numel();
  M *const ml = l.mutable_data_ptr<M>(), *const ms = s.mutable_data_ptr<M>();
  const Adam adam(t, o);
  const auto floats = [&]<class P>(P* data) {
    const at::Tensor same = grad.to(p.scalar_type());
    step_float(data, same.const_data_ptr<P>(), count, ml, ms, adam, stream);
  };
  const auto integers = [&]<class G>(const G* g) {
    std::int8_t* q = p.mutable_data_ptr<std::int8_t>();
    if (param.bits == 1) {
      step_binary(q, g, count, ml, ms, o, stream);
      return;
    }
    const float scale = param.scale_w.item<float>();
    const bool renew = o.renew_scale_every > 0 && t % o.renew_scale_every == 0;
    const float next = renew ? renewed_scale(p, scale, param.bits) : scale;
    step_codes(q, g, count, ml, ms, scale, next, param.bits, adam, stream);
    if (renew) param.scale_w.fill_(next);
  };
  switch (p.scalar_type()) {
    case at::kFloat: return floats(p.mutable_data_ptr<float>());
    case at::kBFloat16: return floats(p.mutable_data_ptr<c10::BFloat16>());
    case at::kHalf: return floats(p.mutable_data_ptr<c10::Half>());
    default: break;
  }
  if (grad.scalar_type() == at::kChar) return integers(grad.const_data_ptr<std::int8_t>());
  integers(grad.const_data_ptr<float>());
}

constexpr const char* seed_key = "seed";

std::string options_key(std::size_t group) { return "group" + std::to_string(group) + ".options"; }

at::Tensor pack(const DiodeMixOptions& o) {
  return at::tensor({o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.correct_bias ? 1.0 : 0.0,
                     static_cast<double>(o.renew_scale_every)},
                    at::kDouble);
}

DiodeMixOptions unpack(const at::Tensor& packed) {
  const double* v = packed.const_data_ptr<double>();
  TORCH_CHECK_VALUE(v[6] >= 0 && v[6] < 0x1p53, "DiodeMix: the state's renew_scale_every is ", v[6]);
  const DiodeMixOptions o{v[0], v[1], v[2], v[3], v[4], v[5] != 0, static_cast<std::int64_t>(v[6])};
  check(o);
  return o;
}

}  // namespace

DiodeMix::DiodeMix(std::vector<Group> groups, std::uint64_t seed, MomentType moments)
    : groups_(std::move(groups)), states_(groups_.size()), seed_(seed), moments_(moments) {
  std::set<const void*> seen;
  std::set<std::string> names;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    check(groups_[i].options);
    for (std::size_t j = 0; j < groups_[i].params.size(); ++j) {
      check(groups_[i].params[j], key(i, j));
      TORCH_CHECK_VALUE(
          seen.insert(groups_[i].params[j].tensor.unsafeGetTensorImpl()).second && names.insert(key(i, j)).second,
          "DiodeMix: the parameter ", key(i, j), " is given twice");
    }
    states_[i].resize(groups_[i].params.size());
  }
}

std::string DiodeMix::key(std::size_t group, std::size_t index) const {
  const std::string& name = groups_[group].params[index].name;
  return name.empty() ? "group" + std::to_string(group) + "." + std::to_string(index) : name;
}

void DiodeMix::zero_grad() {
  for (Group& group : groups_)
    for (Param& param : group.params) param.tensor.mutable_grad() = at::Tensor();
}

void DiodeMix::step() {
  bool any = false;
  for (const Group& group : groups_)
    for (const Param& param : group.params) any |= param.tensor.grad().defined();
  for (const Group& group : groups_) {
    check(group.options);
    for (const Param& param : group.params) {
      const at::Tensor& grad = param.tensor.grad();
      TORCH_CHECK(!any || param.tensor.scalar_type() != at::kChar || grad.defined(), "DiodeMix: the int8 weight ",
                  param.name, " of shape ", param.tensor.sizes(),
                  " has no gradient; its layer ran outside training or its graph was compiled away");
      TORCH_CHECK(!grad.defined() || !grad.is_sparse(), "DiodeMix: sparse gradients are not supported");
      TORCH_CHECK_VALUE(!grad.defined() || grad.sizes() == param.tensor.sizes(), "DiodeMix: ", param.name, " is ",
                        param.tensor.sizes(), ", its gradient ", grad.sizes());
    }
  }
  const at::NoGradGuard no_grad;
  std::uint64_t stream = 0;
  for (std::size_t i = 0; i < groups_.size(); ++i)
    for (std::size_t j = 0; j < groups_[i].params.size(); ++j, ++stream)
      if (groups_[i].params[j].tensor.grad().defined())
        step_one(groups_[i].params[j], states_[i][j], groups_[i].options, stream);
}

void DiodeMix::start(const Param& param, State& state, std::uint64_t stream) const {
  const at::ScalarType type = moments_ == MomentType::float32 ? at::kFloat : at::kBFloat16;
  state.exp_avg_l = at::zeros_like(param.tensor, param.tensor.options().dtype(type).requires_grad(false));
  state.exp_avg_s = at::zeros_like(state.exp_avg_l);
  if (param.tensor.scalar_type() != at::kChar || param.bits != 1) return;
  const Stream random(seed_, stream, 0);
  const auto fill = [&]<class M>(M* s) {
    const std::int8_t* w = param.tensor.const_data_ptr<std::int8_t>();
    for (std::int64_t i = 0; i < param.tensor.numel(); ++i)
      s[i] = static_cast<M>((w[i] < 0 ? 1e-3f : w[i] > 0 ? -1e-3f : 0.0f) * uniform(random.bits(i)));
  };
  if (moments_ == MomentType::float32)
    fill(state.exp_avg_s.mutable_data_ptr<float>());
  else
    fill(state.exp_avg_s.mutable_data_ptr<c10::BFloat16>());
}

void DiodeMix::step_one(const Param& param, State& state, const DiodeMixOptions& o, std::uint64_t stream) const {
  at::Tensor grad = param.tensor.grad().contiguous();
  if (param.tensor.scalar_type() == at::kChar && at::isFloatingType(grad.scalar_type())) {
    grad = grad.to(at::kFloat);
    if (!nn::is_finite(grad)) return;
  }
  if (!state.exp_avg_l.defined()) start(param, state, stream);
  ++state.step;
  const Stream random(seed_, stream, static_cast<std::uint64_t>(state.step));
  if (moments_ == MomentType::float32)
    step_typed<float>(param, grad, state.exp_avg_l, state.exp_avg_s, state.step, o, random);
  else
    step_typed<c10::BFloat16>(param, grad, state.exp_avg_l, state.exp_avg_s, state.step, o, random);
  param.tensor.unsafeGetTensorImpl()->bump_version();
}

std::map<std::string, at::Tensor> DiodeMix::state() const {
  std::map<std::string, at::Tensor> state;
  state[seed_key] = at::full({}, static_cast<std::int64_t>(seed_), at::kLong);
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    state[options_key(i)] = pack(groups_[i].options);
    for (std::size_t j = 0; j < groups_[i].params.size(); ++j) {
      const State& s = states_[i][j];
      if (!s.exp_avg_l.defined()) continue;
      state[key(i, j) + ".exp_avg_l"] = s.exp_avg_l;
      state[key(i, j) + ".exp_avg_s"] = s.exp_avg_s;
      state[key(i, j) + ".step"] = at::full({}, s.step, at::kLong);
    }
  }
  return state;
}

void DiodeMix::load_state(const std::map<std::string, at::Tensor>& state) {
  std::map<std::string, at::Tensor> left = state;
  const at::ScalarType type = moments_ == MomentType::float32 ? at::kFloat : at::kBFloat16;
  const auto take = [&](const std::string& name, at::IntArrayRef sizes, at::ScalarType dtype) {
    const auto found = left.find(name);
    TORCH_CHECK_VALUE(found != left.end(), "DiodeMix: the state has no entry '", name, "'");
    const at::Tensor tensor = found->second;
    TORCH_CHECK_VALUE(tensor.sizes() == sizes && tensor.scalar_type() == dtype, "DiodeMix: the state's entry '", name,
                      "' is ", tensor.sizes(), " of ", tensor.scalar_type(), ", ", sizes, " of ", dtype, " is wanted");
    left.erase(found);
    return tensor;
  };
  const auto seed = static_cast<std::uint64_t>(take(seed_key, {}, at::kLong).item<std::int64_t>());
  std::vector<DiodeMixOptions> options;
  std::vector<std::vector<State>> states(groups_.size());
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    options.push_back(unpack(take(options_key(i), {7}, at::kDouble).contiguous()));
    for (std::size_t j = 0; j < groups_[i].params.size(); ++j) {
      State& s = states[i].emplace_back();
      const std::string name = key(i, j);
      if (left.count(name + ".step") == 0 && left.count(name + ".exp_avg_l") == 0) continue;  // it never had a gradient
      const at::IntArrayRef sizes = groups_[i].params[j].tensor.sizes();
      s.exp_avg_l = take(name + ".exp_avg_l", sizes, type).clone();
      s.exp_avg_s = take(name + ".exp_avg_s", sizes, type).clone();
      s.step = take(name + ".step", {}, at::kLong).item<std::int64_t>();
      TORCH_CHECK_VALUE(s.step >= 1, "DiodeMix: the state's entry '", name, ".step' is ", s.step);
      for (const at::Tensor& moment : {s.exp_avg_l, s.exp_avg_s})
        TORCH_CHECK_VALUE(nn::is_finite(moment), "DiodeMix: the state of '", name, "' holds NaN or infinity");
    }
  }
  TORCH_CHECK_VALUE(left.empty(), "DiodeMix: the state's entry '", left.begin()->first, "' belongs to no parameter");
  seed_ = seed;
  for (std::size_t i = 0; i < groups_.size(); ++i) groups_[i].options = options[i];
  states_ = std::move(states);
}

std::int64_t DiodeMix::state_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& group : states_)
    for (const State& s : group)
      if (s.exp_avg_l.defined()) bytes += static_cast<std::int64_t>(s.exp_avg_l.nbytes() + s.exp_avg_s.nbytes());
  return bytes;
}

}  // namespace bie::optim
