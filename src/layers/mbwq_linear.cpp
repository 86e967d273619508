#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <ostream>
#include <tuple>
#include <utility>

#include "bie/layers/weight_only.h"
#include "bie/ops/weight_only_rules.h"
#include "layers/entries.h"
#include "layers/ordinary_tensors.h"

namespace bie::layers {
namespace {

std::int64_t words_of(const MBWQLinearOptions& o) { return (o.in_features * o.bits + 31) / 32; }

std::int64_t groups_of(const MBWQLinearOptions& o) {
  TORCH_CHECK_VALUE(o.bits == 0 || o.bits == 2 || o.bits == 4,
                    "MBWQLinear: bits: expected 2 or 4, or 0 for rows of several widths, got ", o.bits);
  TORCH_CHECK_VALUE(o.group_size == -1 || o.group_size > 0,
                    "MBWQLinear: group_size: expected -1 or a positive number, got ", o.group_size);
  if (o.bits == 0) return 0;
  return o.group_size == -1 ? 1 : (o.in_features + o.group_size - 1) / o.group_size;
}

/// Entries that files have and prepared layers do without.
constexpr const char* passed_over[] = {"g_idx",        "qzeros",  "wf",         "qscales_zeros", "qscales_scales",
                                       "qzeros_zeros", "qscales", "qstatistic", "qzeros_scales"};

}  // namespace

MBWQLinearImpl::MBWQLinearImpl(const MBWQLinearOptions& o)
    : CodedLinear(o.in_features, o.out_features, words_of(o), groups_of(o), o.bias), options_(o) {
  const c10::InferenceMode off(false);
  if (options_.group_size == -1) options_.group_size = o.in_features;
  q_perm = register_buffer("q_perm", at::zeros({o.in_features}, at::kShort));
  channel_scale = register_buffer("channel_scale", at::ones({1, 1, o.in_features}));
  if (is_mixed()) q_groups = register_buffer("q_groups", at::zeros({0}, at::kShort));
  coded().bits = o.bits;
  coded().group_size = options_.group_size;
  coded().q_perm = q_perm;
}

void MBWQLinearImpl::check_weight() const {
  TORCH_CHECK(!is_mixed() || !coded().bit_rows.empty(),
              "MBWQLinear: rows of several widths take their weight from a file, none was loaded");
}

int MBWQLinearImpl::weight_bits() const {
  if (!is_mixed()) return options_.bits;
  return coded().bit_rows.empty() ? 0 : static_cast<int>(coded().bit_rows.front());
}

void MBWQLinearImpl::moved(torch::Device device) {
  CodedLinear::moved(device);
  if (coded().g_idx.defined()) coded().g_idx = coded().g_idx.to(device);
}

QuantLayer::Take MBWQLinearImpl::check_state(StateDict& all, const std::string& prefix) {
  struct Staged {
    at::Tensor qweight, q_perm, channel_scale, q_groups, scales, zeros, bias, group_of;
    std::vector<std::int64_t> bit_rows;
  };
  Entries entries(all, prefix);
  const auto s = std::make_shared<Staged>();
  const std::int64_t in = options_.in_features, out = options_.out_features;
  std::int64_t groups = scales.size(0);
  s->qweight = entries.take("qweight");
  const std::int64_t words = is_mixed() && s->qweight.dim() == 2 ? s->qweight.size(0) : qweight.size(0);
  ops::check_entry(s->qweight, {words, out}, at::kInt, entries.name("qweight"));
  if (is_mixed()) {
    s->q_groups = entries.take("q_groups");
    const std::string name = entries.name("q_groups");
    std::tie(s->bit_rows, s->group_of) = ops::mixed_rows(s->q_groups, words, name);
    TORCH_CHECK_VALUE(s->group_of.numel() == in, name, ": expected ", in, " rows, got ", s->group_of.numel());
    groups = s->q_groups.numel() / 2;
  }
  s->q_perm = entries.take("q_perm");
  ops::check_permutation_entry(s->q_perm, in, entries.name("q_perm"));
  s->channel_scale = entries.take("channel_scale", channel_scale.sizes(), at::kFloat);
  s->scales = entries.take("scales", {groups, out}, at::kFloat);
  s->zeros = entries.take("zeros", {groups, out}, at::kFloat);
  if (bias.defined())
    s->bias = entries.take("bias", bias.sizes(), at::kFloat);
  else
    entries.pass_over("bias");
  for (const char* key : passed_over) entries.pass_over(key);
  return [this, s] {
    const OrdinaryTensors ordinary;
    // The sizes may be others: a tensor keeps its place and takes new memory.
    const auto take = [](at::Tensor place, const at::Tensor& value) {
      place.set_data(value.to(place.options(), /*non_blocking=*/false, /*copy=*/true).contiguous());
    };
    take(qweight, s->qweight);
    take(scales, s->scales);
    take(zeros, s->zeros);
    take(q_perm, s->q_perm);
    take(channel_scale, s->channel_scale);
    if (is_mixed()) {
      take(q_groups, s->q_groups);
      coded().bit_rows = s->bit_rows;
      coded().g_idx = s->group_of.to(qweight.device());
    }
    if (bias.defined()) bias.data().copy_(s->bias);
    repack();
  };
}

void MBWQLinearImpl::pretty_print(std::ostream& stream) const {
  stream << kind() << '(' << options_.in_features << ", " << options_.out_features;
  if (is_mixed())
    stream << ", rows of several widths";
  else
    stream << ", bits=" << options_.bits << ", group_size=" << options_.group_size;
  stream << (bias.defined() ? ", bias)" : ")");
}

}  // namespace bie::layers
