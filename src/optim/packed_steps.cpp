#include "optim/packed_steps.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace bie::optim {
namespace {

using layers::PackedWeight;

constexpr std::int64_t zeros_every = 5;

bool is_signs(const PackedWeight& weight) { return weight.form() == PackedWeight::Form::sign_rows; }

}  // namespace

bool has_first_moment(const PackedWeight& weight) { return !is_signs(weight); }

std::vector<std::int64_t> moment_sizes(const PackedWeight& weight) {
  if (!is_signs(weight)) return weight.shape();
  return {weight.shape()[0], 8 * weight.tensors.qweight.size(1)};
}

Moments first_moments(const PackedWeight& weight, at::ScalarType dtype, std::int64_t seed, std::int64_t stream) {
  const at::Tensor& words = weight.tensors.qweight;
  const std::vector<std::int64_t> sizes = moment_sizes(weight);
  if (is_signs(weight))
    return {{}, ops::diode_mix_first_moment(ops::unpack_signs(words, sizes[1]), dtype, seed, stream)};
  const at::Tensor zeros = at::zeros(sizes, words.options().dtype(dtype));
  return {zeros, at::zeros_like(zeros)};
}

void step_packed(const PackedWeight& weight, const at::Tensor& gradient, const Moments& moments,
                 const ops::DiodeMixStep& step) {
  const bool moves_zeros = step.step % zeros_every == 0;
  if (weight.form() == PackedWeight::Form::codes) {
    ops::diode_mix_weight_only_(weight.tensors, gradient, moments.l, moments.s, {}, moves_zeros, step);
    return;
  }
  const at::Tensor sums = gradient.is_sparse() ? gradient.coalesce() : gradient;
  const at::Tensor rows = gradient.is_sparse() ? sums.indices().select(0, 0)
                                               : at::arange(gradient.size(0), gradient.options().dtype(at::kLong));
  const at::Tensor values = gradient.is_sparse() ? sums.values() : sums;
  if (is_signs(weight))
    ops::diode_mix_embedding_(weight.tensors.qweight, rows, values, moments.s, weight.shape()[1], step);
  else
    ops::diode_mix_weight_only_rows_(weight.tensors, rows, values, moments.l, moments.s, moves_zeros, step);
}

}  // namespace bie::optim
