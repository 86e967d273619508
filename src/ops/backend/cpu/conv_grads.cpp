#include "ops/backend/conv_grads.h"

#include "ops/backend/cpu/backend.h"

namespace bie::ops::cpu {
namespace {

constexpr std::int64_t no_padding[] = {0, 0};

class CpuConvGrads final : public ConvGrads {
  Grads run(const ConvGradCall& c) const override {
    const bool want_x = at::isFloatingType(c.x.scalar_type());
    const at::MemoryFormat layout = c.x.suggest_memory_format();
    at::Tensor xs = c.x;
    if (want_x) {
      xs = c.x.to(at::kFloat);
      if (c.bias.defined()) xs = xs.add(c.bias.view({1, -1, 1, 1}));
      xs = xs.contiguous(layout);
    }
    at::Tensor values = c.values(xs, c.scales_behind ? unit_scale : c.scale);
    // As the convolution wants it: codes are moved cheaply.
    const at::Tensor filter =
        c.filter.values(c.filter.operand.contiguous(layout), at::kFloat, c.scales_behind ? unit_scale : c.filter_scale);
    Movement move = c.move;
    const bool rim = c.pads_with_minus_one && (move.padding[0] > 0 || move.padding[1] > 0);
    if (rim) {
      values = padded_with_minus_one(values, move.padding);
      move.padding = no_padding;
    }
    auto [up, grad_w] = float_conv_grads(c.g.to(at::kFloat), values, filter, move, want_x, c.of_weight != nullptr);
    Grads grads;
    if (want_x) {
      if (rim) up = up.narrow(2, c.move.padding[0], c.x.size(2)).narrow(3, c.move.padding[1], c.x.size(3));
      up = up.contiguous(layout);
      std::get<2>(grads) = c.in_place({up, c.scales_behind ? c.filter_scale : unit_scale}, xs);
      if (c.bias.defined()) std::get<3>(grads) = up.sum({0, 2, 3}).to(c.bias_a.scalar_type());
      std::get<0>(grads) = up.to(c.x.scalar_type());
    }
    if (c.of_weight) std::get<1>(grads) = c.of_weight({grad_w.contiguous(), c.scales_behind ? c.scale : unit_scale});
    return grads;
  }
};

}  // namespace

const ConvGrads& conv_grads() {
  static const CpuConvGrads it;
  return it;
}

}  // namespace bie::ops::cpu
