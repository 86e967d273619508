#include "ops/backend/block_tails.h"

#include <ATen/ops/empty.h>

#include "bie/kernels/block_tail.h"
#include "ops/backend/cpu/backend.h"
#include "ops/backend/cpu/torch_parallel.h"
#include "ops/checks.h"

namespace bie::ops::cpu {
namespace {

class CpuBlockTails final : public BlockTails {
  bool in_one_pass() const override { return true; }
  void run(const char* op, const at::Tensor& x, const NormNumbers& norm, const at::Tensor& shortcut,
           const TailActivation& act, std::int64_t pool, const at::Tensor& y) const override {
    const bool is_image = x.dim() == 4;
    const bool last = is_image && !x.is_contiguous() && x.is_contiguous(at::MemoryFormat::ChannelsLast);
    const at::MemoryFormat format = last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    const auto dense = [](const at::Tensor& t) { return t.defined() ? t.contiguous() : t; };
    const auto data = [](const at::Tensor& t) { return t.defined() ? t.const_data_ptr<float>() : nullptr; };
    const at::Tensor from = x.contiguous(format), add = shortcut.defined() ? shortcut.contiguous(format) : shortcut;
    const at::Tensor mean = dense(norm.mean), var = dense(norm.var), weight = dense(norm.weight),
                     bias = dense(norm.bias);
    const kernels::BlockTailShape shape{x.size(0),
                                        x.size(1),
                                        is_image ? x.size(2) : 1,
                                        is_image ? x.size(3) : 1,
                                        pool,
                                        last ? kernels::ImageLayout::nhwc : kernels::ImageLayout::nchw};
    const kernels::BlockTailCall call{data(from),
                                      data(add),
                                      data(mean),
                                      data(var),
                                      data(weight),
                                      data(bias),
                                      static_cast<float>(norm.eps),
                                      act.kind == TailActivation::prelu ? *data(act.slope) : 1.0f,
                                      act.kind == TailActivation::relu,
                                      y.mutable_data_ptr<float>()};
    check_status(op, chosen(op, kernels::block_tail_table(), shape).run(shape, call, torch_parallel()));
  }
};

}  // namespace

const BlockTails& block_tails() {
  static const CpuBlockTails it;
  return it;
}

}  // namespace bie::ops::cpu
