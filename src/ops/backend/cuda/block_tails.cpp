// torch's operators, one after the other.
#include "ops/backend/block_tails.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/prelu.h>
#include <ATen/ops/relu.h>

#include "ops/backend/backend.h"

namespace bie::ops::cuda {
namespace {

class CudaBlockTails final : public BlockTails {
  bool in_one_pass() const override { return false; }
  void run(const char*, const at::Tensor& x, const NormNumbers& norm, const at::Tensor& shortcut,
           const TailActivation& act, std::int64_t pool, const at::Tensor& y) const override {
    at::Tensor v = x;
    if (norm.mean.defined())
      v = at::batch_norm(x, norm.weight, norm.bias, norm.mean, norm.var, /*training=*/false, /*momentum=*/0, norm.eps,
                         /*cudnn_enabled=*/false);
    if (shortcut.defined()) v = v + shortcut;
    if (act.kind == TailActivation::relu) v = at::relu(v);
    if (act.kind == TailActivation::prelu) v = at::prelu(v, act.slope.reshape({1}));
    y.copy_(pool > 1 ? at::max_pool2d(v, pool) : v);
  }
};

}  // namespace

const BlockTails& block_tails() {
  static const CudaBlockTails it;
  return it;
}

}  // namespace bie::ops::cuda
