// How DiodeMix steps a weight of packed codes or signs (docs/spec/optimizer.md#weight-only-weights).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "bie/layers/packed_layer.h"
#include "bie/ops.h"

namespace bie::optim {

/// The two moments; a table of signs has the second alone.
struct Moments {
  at::Tensor l, s;
};

bool has_first_moment(const layers::PackedWeight& weight);
/// Shape of each moment: that of the weight as floats, except that rows of signs are as long as their bytes.
std::vector<std::int64_t> moment_sizes(const layers::PackedWeight& weight);
/// Initial moments, before the first step.
Moments first_moments(const layers::PackedWeight& weight, at::ScalarType dtype, std::int64_t seed, std::int64_t stream);

/// One step by a finite gradient; tables step the rows of a sparse one. Every fifth step moves the zeros too.
void step_packed(const layers::PackedWeight& weight, const at::Tensor& gradient, const Moments& moments,
                 const ops::DiodeMixStep& step);

}  // namespace bie::optim
