#include "bie/optim/diode_mix.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/any.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bie/ops.h"
#include "bie/ops/weight_rules.h"
#include "optim/packed_steps.h"

namespace bie::optim {
namespace {

void check(const DiodeMixOptions& o) {
  const auto at_least_0 = [](const char* name, double value) {
    TORCH_CHECK_VALUE(std::isfinite(value) && value >= 0, "DiodeMix: ", name, ": expected a number >= 0, got ", value);
  };
  at_least_0("lr", o.lr);
  at_least_0("eps", o.eps);
  at_least_0("weight_decay", o.weight_decay);
  at_least_0("renew_scale_every", static_cast<double>(o.renew_scale_every));
  for (const double beta : {o.beta1, o.beta2})
    TORCH_CHECK_VALUE(beta >= 0 && beta < 1, "DiodeMix: a beta: expected a number in [0, 1), got ", beta);
}

void check(const Param& param, const std::string& key) {
  const at::Tensor& t = param.tensor;
  if (param.packed != nullptr) return;  // its layer made it
  TORCH_CHECK_VALUE(t.defined() && t.is_contiguous() && (t.is_cpu() || t.is_cuda()), "DiodeMix: the parameter ", key,
                    " is not a dense tensor on the CPU or on CUDA");
  const at::ScalarType type = t.scalar_type();
  const bool is_float = type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
  TORCH_CHECK_VALUE(is_float || type == at::kChar, "DiodeMix: the parameter ", key,
                    ": expected float32, bfloat16, float16 or int8, got ", type);
  TORCH_CHECK_VALUE(is_float || param.bits == 1 || param.bits == 4 || param.bits == 8, "DiodeMix: the parameter ", key,
                    ": expected int8 of 1, 4 or 8 bits (see optim::parameters), got int8 of ", param.bits);
  TORCH_CHECK_VALUE(
      is_float || param.bits == 1 ||
          (param.scale_w.defined() && param.scale_w.numel() == 1 && param.scale_w.scalar_type() == at::kFloat),
      "DiodeMix: the codes ", key, " want a scale_w of one float32");
}

constexpr const char* seed_key = "seed";

/// Whether the gradient of an integer weight was finite: int8_grad makes zeros of one that was not.
bool is_usable(const at::Tensor& grad) {
  if (grad.is_sparse()) return ops::all_finite(grad.coalesce().values());
  return at::isFloatingType(grad.scalar_type()) ? ops::all_finite(grad) : grad.any().item<bool>();
}

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

Param::Param(std::shared_ptr<layers::PackedWeight> weight, std::string called)
    : tensor(weight->tensors.qweight), name(std::move(called)), packed(std::move(weight)) {}

at::Tensor Param::gradient() const { return packed != nullptr ? packed->gradient() : tensor.grad(); }

/// Parameters of one kind on one device, which one operator call steps.
struct DiodeMix::Batch {
  using Call = void(const std::vector<ops::DiodeMixItem>&, const ops::DiodeMixStep&);
  Call* call;
  at::Device device;
  std::vector<ops::DiodeMixItem> items;
};

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
    for (Param& param : group.params)
      if (param.packed != nullptr)
        param.packed->set_gradient({});
      else
        param.tensor.mutable_grad() = at::Tensor();
}

void DiodeMix::step() {
  bool any = false;
  for (const Group& group : groups_)
    for (const Param& param : group.params) any |= param.gradient().defined();
  for (const Group& group : groups_) {
    check(group.options);
    for (const Param& param : group.params) {
      const at::Tensor grad = param.gradient();
      const bool packed = param.packed != nullptr;
      const bool wants = packed ? param.packed->awaits_gradient : param.tensor.scalar_type() == at::kChar;
      TORCH_CHECK(!any || !wants || grad.defined(), "DiodeMix: the ", packed ? "packed" : "int8", " weight ",
                  param.name, " of shape ", param.tensor.sizes(),
                  " has no gradient; its layer ran outside training or its graph was compiled away");
      if (packed) continue;
      TORCH_CHECK(!grad.defined() || !grad.is_sparse(), "DiodeMix: sparse gradients are not supported");
      TORCH_CHECK_VALUE(!grad.defined() || grad.sizes() == param.tensor.sizes(), "DiodeMix: ", param.name, " is ",
                        param.tensor.sizes(), ", its gradient ", grad.sizes());
    }
  }
  const at::NoGradGuard no_grad;
  std::int64_t stream = 0;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const DiodeMixOptions& o = groups_[i].options;
    std::vector<Batch> batches;
    for (std::size_t j = 0; j < groups_[i].params.size(); ++j, ++stream)
      if (groups_[i].params[j].gradient().defined()) add(groups_[i].params[j], states_[i][j], o, stream, batches);
    const ops::DiodeMixStep numbers{
        1, o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.correct_bias, static_cast<std::int64_t>(seed_), 0};
    for (const Batch& batch : batches) {
      batch.call(batch.items, numbers);
      for (const ops::DiodeMixItem& item : batch.items) item.param.unsafeGetTensorImpl()->bump_version();
    }
    for (const Param& param : groups_[i].params)
      if (param.packed != nullptr) param.packed->awaits_gradient = false;
  }
}

void DiodeMix::start(const Param& param, State& state, std::int64_t stream) const {
  const at::ScalarType type = moments_ == MomentType::float32 ? at::kFloat : at::kBFloat16;
  if (param.packed != nullptr) {
    const Moments first = first_moments(*param.packed, type, static_cast<std::int64_t>(seed_), stream);
    state.exp_avg_l = first.l;
    state.exp_avg_s = first.s;
    return;
  }
  state.exp_avg_l = at::zeros_like(param.tensor, param.tensor.options().dtype(type).requires_grad(false));
  const bool signs = param.tensor.scalar_type() == at::kChar && param.bits == 1;
  state.exp_avg_s = signs ? ops::diode_mix_first_moment(param.tensor, type, static_cast<std::int64_t>(seed_), stream)
                          : at::zeros_like(state.exp_avg_l);
}

void DiodeMix::add(const Param& param, State& state, const DiodeMixOptions& o, std::int64_t stream,
                   std::vector<Batch>& batches) const {
  const at::Tensor grad = param.gradient();
  const bool integer = param.tensor.scalar_type() == at::kChar;
  // On CUDA the step itself leaves such a weight out: to ask here would wait for the device.
  const bool host = param.tensor.is_cpu();
  if ((param.packed != nullptr || (host && integer)) && !is_usable(grad)) return;
  if (!state.exp_avg_s.defined()) start(param, state, stream);
  if (param.packed != nullptr) {
    step_packed(*param.packed, grad, {state.exp_avg_l, state.exp_avg_s},
                {++state.step, o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.correct_bias,
                 static_cast<std::int64_t>(seed_), stream});
    return;
  }
  ops::DiodeMixItem item{param.tensor, grad, state.exp_avg_l, state.exp_avg_s, ++state.step, stream};
  Batch::Call* call = ops::diode_mix_float_many_;
  if (integer && param.bits == 1) call = ops::diode_mix_signs_many_;
  if (integer && param.bits != 1) {
    call = ops::diode_mix_codes_many_;
    item.scale_w = param.scale_w;
    item.bits = param.bits;
    item.renew_scale = o.renew_scale_every > 0 && state.step % o.renew_scale_every == 0;
  }
  const at::Device device = param.tensor.device();
  auto batch = std::find_if(batches.begin(), batches.end(),
                            [&](const Batch& b) { return b.call == call && b.device == device; });
  if (batch == batches.end()) batch = batches.insert(batch, {call, device, {}});
  batch->items.push_back(std::move(item));
}

std::map<std::string, at::Tensor> DiodeMix::state() const {
  std::map<std::string, at::Tensor> state;
  state[seed_key] = at::full({}, static_cast<std::int64_t>(seed_), at::kLong);
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    state[options_key(i)] = pack(groups_[i].options);
    for (std::size_t j = 0; j < groups_[i].params.size(); ++j) {
      const State& s = states_[i][j];
      if (!s.exp_avg_s.defined()) continue;
      if (s.exp_avg_l.defined()) state[key(i, j) + ".exp_avg_l"] = s.exp_avg_l;
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
                      "': expected ", sizes, " of ", dtype, ", got ", tensor.sizes(), " of ", tensor.scalar_type());
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
      const Param& param = groups_[i].params[j];
      const bool has_l = param.packed == nullptr || has_first_moment(*param.packed);
      const char* const first = has_l ? ".exp_avg_l" : ".exp_avg_s";
      if (left.count(name + ".step") == 0 && left.count(name + first) == 0) continue;  // it never had a gradient
      const std::vector<std::int64_t> sizes =
          param.packed != nullptr ? moment_sizes(*param.packed) : param.tensor.sizes().vec();
      const at::Device device = param.tensor.device();
      const auto copied = [&](const char* moment) {
        return take(name + moment, sizes, type).to(device, type, /*non_blocking=*/false, /*copy=*/true);
      };
      if (has_l) s.exp_avg_l = copied(".exp_avg_l");
      s.exp_avg_s = copied(".exp_avg_s");
      s.step = take(name + ".step", {}, at::kLong).item<std::int64_t>();
      TORCH_CHECK_VALUE(s.step >= 1, "DiodeMix: the state's entry '", name, ".step' is ", s.step);
      for (const at::Tensor& moment : {s.exp_avg_l, s.exp_avg_s})
        TORCH_CHECK_VALUE(!moment.defined() || ops::all_finite(moment), "DiodeMix: the state of '", name,
                          "' holds NaN or infinity");
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
      for (const at::Tensor& moment : {s.exp_avg_l, s.exp_avg_s})
        if (moment.defined()) bytes += static_cast<std::int64_t>(moment.nbytes());
  return bytes;
}

}  // namespace bie::optim
