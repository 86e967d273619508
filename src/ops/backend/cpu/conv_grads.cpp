#include "ops/backend/conv_grads.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>

#include "ops/backend/cpu/backend.h"
#include "ops/backend/cpu/products.h"

namespace bie::ops::cpu {
namespace {

/// Filters so large and pixels of g so few that a product of g and copied windows is faster than torch's convolution,
/// which spends most of its time on the order of the filter. Measured, see docs/measured/cpu-backward.md.
constexpr std::int64_t large_filter = std::int64_t{1} << 21, few_pixels = 1024;

bool suits_windows(const ConvGradCall& c) {
  return c.move.groups == 1 && c.filter.operand.numel() >= large_filter &&
         c.g.size(0) * c.g.size(2) * c.g.size(3) <= few_pixels;
}

/// [pixels of g][kernel_h, kernel_w, channels] of an image that is already padded.
at::Tensor windows_of(const at::Tensor& padded, const ConvGradCall& c) {
  const at::Tensor& filter = c.filter.operand;
  const at::Tensor pixels = padded.permute({0, 2, 3, 1}).contiguous();
  const std::int64_t channels = pixels.size(3), row = pixels.stride(1);
  const at::Tensor windows =
      pixels.as_strided({c.g.size(0), c.g.size(2), c.g.size(3), filter.size(2), filter.size(3), channels},
                        {pixels.stride(0), c.move.stride[0] * row, c.move.stride[1] * channels,
                         c.move.dilation[0] * row, c.move.dilation[1] * channels, 1});
  return windows.reshape({c.g.size(0) * c.g.size(2) * c.g.size(3), -1});
}

/// The filter's gradient [out_c, in_c, kh, kw] as a product of rows of g and windows of integers, one byte each.
at::Tensor filter_grad_of_windows(const ConvGradCall& c, const at::Tensor& g, const at::Tensor& numbers,
                                  const Scale& scale) {
  const at::Tensor& filter = c.filter.operand;
  const at::IntArrayRef p = c.move.padding;
  const at::Tensor bytes = numbers.to(at::kChar);
  const at::Tensor windows = windows_of(
      c.pads_with_minus_one ? padded_with_minus_one(bytes, p) : at::constant_pad_nd(bytes, {p[1], p[1], p[0], p[0]}, 0),
      c);
  const at::Tensor rows = g.permute({0, 2, 3, 1}).reshape({-1, g.size(1)});
  const auto as_floats = [](const at::Tensor& values, at::ScalarType dtype, const Scale& by) {
    return Scaled{values.to(dtype), by}.multiplied();
  };
  const Factor factor = {windows, as_floats, [&windows] { return Codes{windows}; }};
  return output_grad(c.op, rows)
      ->transposed_times(factor, scale)
      .values.view({filter.size(0), filter.size(2), filter.size(3), filter.size(1)})
      .permute({0, 3, 1, 2});
}

/// The filter's gradient by torch's convolution, which pads with 0: a padding of -1 is one of 0 around numbers that are
/// larger by 1, and every number of a window is 1 too large then.
at::Tensor filter_grad(const ConvGradCall& c, const at::Tensor& g, const at::Tensor& numbers, at::MemoryFormat layout) {
  const at::Tensor filter = at::empty(c.filter.operand.sizes(), g.options(), layout);  // for its shape alone
  const bool rim = c.pads_with_minus_one && (c.move.padding[0] > 0 || c.move.padding[1] > 0);
  if (rim) numbers.add_(1);
  at::Tensor grad = std::get<1>(float_conv_grads(g, numbers, filter, c.move, /*want_x=*/false, /*want_weight=*/true));
  if (rim) grad.sub_(g.sum({0, 2, 3}).view({-1, 1, 1, 1}));
  return grad;
}

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
    const at::Tensor g = c.g.to(at::kFloat);
    Grads grads;
    if (c.of_weight) {
      const bool windows = suits_windows(c);
      const at::Tensor numbers = c.values(xs, windows || c.scales_behind ? unit_scale : c.scale);
      const at::Tensor grad = windows ? filter_grad_of_windows(c, g, numbers, c.scales_behind ? unit_scale : c.scale)
                                      : filter_grad(c, g, numbers, layout);
      std::get<1>(grads) = c.of_weight({grad.contiguous(), c.scales_behind ? c.scale : unit_scale});
    }
    if (want_x) {
      // The convolution wants this layout: moving codes is cheap.
      const at::Tensor filter = c.filter.values(c.filter.operand.contiguous(layout), at::kFloat,
                                                c.scales_behind ? unit_scale : c.filter_scale);
      const at::Tensor up = std::get<0>(float_conv_grads(g, xs, filter, c.move, /*want_x=*/true, /*want_weight=*/false))
                                .contiguous(layout);
      std::get<2>(grads) = input_gradients().in_place_({up, c.scales_behind ? c.filter_scale : unit_scale}, xs,
                                                       c.scale_a, c.scale, c.rule);
      if (c.bias.defined()) std::get<3>(grads) = up.sum({0, 2, 3}).to(c.bias_a.scalar_type());
      std::get<0>(grads) = up.to(c.x.scalar_type());
    }
    return grads;
  }
};

}  // namespace

const ConvGrads& conv_grads() {
  static const CpuConvGrads it;
  return it;
}

}  // namespace bie::ops::cpu
