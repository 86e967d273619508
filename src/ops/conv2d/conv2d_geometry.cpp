#include "ops/conv2d/conv2d_geometry.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "ops/checks.h"

namespace bie::ops {
namespace {

void check_pair(const char* op, const char* name, at::IntArrayRef pair, std::int64_t least) {
  constexpr std::int64_t most = INT32_MAX;  // products with a kernel's size stay far from overflow
  const auto fits = [least](std::int64_t value) { return value >= least && value <= most; };
  TORCH_CHECK_VALUE(pair.size() == 2 && fits(pair[0]) && fits(pair[1]), op, ": ", name, ": expected two numbers from ",
                    least, " to ", most, ", got ", pair);
}

c10::SymInt out_size(const char* op, const c10::SymInt& in, std::int64_t kernel, std::int64_t stride,
                     std::int64_t padding, std::int64_t dilation) {
  const c10::SymInt room = in + 2 * padding - dilation * (kernel - 1) - 1;
  TORCH_CHECK_VALUE(room >= 0, op, ": a kernel of ", kernel, " (dilation ", dilation, ") does not fit an image of ", in,
                    " with padding ", padding);
  return room / stride + 1;
}

}  // namespace

void check_image(const char* op, const at::Tensor& x) {
  TORCH_CHECK_VALUE(x.dim() == 4, op, ": x: expected [batch, channels, height, width], got ", x.sym_sizes());
}

Geometry check_filter(const char* op, const at::Tensor& x, const at::Tensor& weight, bool packed,
                      std::int64_t codes_a_byte, const char* packed_name, OptPair kernel_size, const Movement& move) {
  const std::int64_t in_c = fixed_size(x, 1), groups = move.groups;
  TORCH_CHECK_VALUE(groups >= 1 && in_c % groups == 0, op, ": x is ", x.sym_sizes(), ", ", groups,
                    " groups do not divide its channels");
  const std::int64_t group_in = in_c / groups;
  Geometry g{weight.dim() > 0 ? fixed_size(weight, 0) : 0, in_c, 0, 0, packed};
  if (packed && weight.dim() == 2) {
    TORCH_CHECK_VALUE(kernel_size.has_value() && kernel_size->size() == 2, op,
                      ": a flat packed weight wants kernel_size");
    g.kernel_h = (*kernel_size)[0];
    g.kernel_w = (*kernel_size)[1];
    const std::int64_t row = (g.depth(groups) + codes_a_byte - 1) / codes_a_byte;
    TORCH_CHECK_VALUE(fixed_size(weight, 1) == row, op, ": the weight is ", weight.sym_sizes(), " (", packed_name,
                      "), ", group_in, " channels and kernel ", *kernel_size, " want [n, ", row, "]");
  } else {
    TORCH_CHECK_VALUE(weight.dim() == 4, op, ": the weight: expected four axes, got ", weight.sym_sizes());
    g.kernel_h = fixed_size(weight, packed ? 1 : 2);
    g.kernel_w = fixed_size(weight, packed ? 2 : 3);
    TORCH_CHECK_VALUE(packed ? codes_a_byte * fixed_size(weight, 3) == group_in : fixed_size(weight, 1) == group_in, op,
                      ": x is ", x.sym_sizes(), ", the weight is ", weight.sym_sizes(), packed ? " (" : "",
                      packed ? packed_name : "", packed ? ")" : "",
                      groups > 1 ? c10::str(" in ", groups, " groups") : std::string());
    TORCH_CHECK_VALUE(!kernel_size || (kernel_size->size() == 2 && (*kernel_size)[0] == g.kernel_h &&
                                       (*kernel_size)[1] == g.kernel_w),
                      op, ": kernel_size is ", kernel_size ? *kernel_size : at::IntArrayRef{}, ", the weight is ",
                      weight.sym_sizes());
  }
  TORCH_CHECK_VALUE(in_c > 0 && g.kernel_h > 0 && g.kernel_w > 0, op,
                    ": the weight: expected at least one channel and tap, got ", weight.sym_sizes());
  TORCH_CHECK_VALUE(g.out_c % groups == 0, op, ": the weight is ", weight.sym_sizes(), ", ", groups,
                    " groups do not divide its outputs");
  check_pair(op, "stride", move.stride, 1);
  check_pair(op, "padding", move.padding, 0);
  check_pair(op, "dilation", move.dilation, 1);
  return g;
}

kernels::Conv2dShape packed_filter_shape(const char* op, const at::Tensor& weight, std::int64_t codes_a_byte,
                                         std::int64_t in_channels, at::IntArrayRef kernel_size, std::int64_t groups) {
  TORCH_CHECK_VALUE(in_channels > 0 && kernel_size.size() == 2 && kernel_size[0] > 0 && kernel_size[1] > 0 &&
                        weight.dim() >= 2 && weight.sym_numel() > 0,
                    op, ": the weight is ", weight.sym_sizes(), ", in_channels is ", in_channels, ", kernel_size is ",
                    kernel_size);
  kernels::Conv2dShape shape{1, in_channels, 1, 1, fixed_size(weight, 0), kernel_size[0], kernel_size[1]};
  TORCH_CHECK_VALUE(groups >= 1 && in_channels % groups == 0 && shape.out_c % groups == 0, op, ": ", groups,
                    " groups do not divide ", in_channels, " channels and ", shape.out_c, " outputs");
  shape.groups = groups;
  const std::int64_t row = (shape.depth() + codes_a_byte - 1) / codes_a_byte;
  TORCH_CHECK_VALUE(weight.sym_numel() == shape.out_c * row, op, ": the weight is ", weight.sym_sizes(), ", ",
                    shape.group_in(), " channels and kernel ", kernel_size, " want rows of ", row, " bytes");
  return shape;
}

std::array<c10::SymInt, 4> output_sizes(const char* op, const at::Tensor& x, const Geometry& g, const Movement& move) {
  return {x.sym_size(0), g.out_c,
          out_size(op, x.sym_size(2), g.kernel_h, move.stride[0], move.padding[0], move.dilation[0]),
          out_size(op, x.sym_size(3), g.kernel_w, move.stride[1], move.padding[1], move.dilation[1])};
}

at::Tensor empty_output(const char* op, const at::Tensor& x, const Geometry& g, const Movement& move) {
  const at::ScalarType type = is_float_type(x.scalar_type()) ? x.scalar_type() : at::kFloat;
  return at::empty_symint(output_sizes(op, x, g, move), x.options().dtype(type), x.suggest_memory_format());
}

kernels::Conv2dShape kernel_shape(const at::Tensor& x, const Geometry& g, const Movement& move) {
  return {x.size(0),       g.in_c,           x.size(2),        x.size(3),      g.out_c,
          g.kernel_h,      g.kernel_w,       move.stride[0],   move.stride[1], move.padding[0],
          move.padding[1], move.dilation[0], move.dilation[1], move.groups};
}

at::Tensor one_group(const at::Tensor& filter, std::int64_t groups) {
  if (groups == 1) return filter.contiguous();
  const std::int64_t out = filter.size(0) / groups, in = filter.size(1);
  at::Tensor dense = at::zeros({filter.size(0), in * groups, filter.size(2), filter.size(3)}, filter.options());
  for (std::int64_t i = 0; i < groups; ++i)
    dense.narrow(0, i * out, out).narrow(1, i * in, in).copy_(filter.narrow(0, i * out, out));
  return dense;
}

at::Tensor padded_with_minus_one(const at::Tensor& signs, at::IntArrayRef padding) {
  const at::Tensor pixels = signs.permute({0, 2, 3, 1});
  if (signs.scalar_type() == at::kChar && pixels.is_contiguous() && signs.size(1) % 8 == 0) {
    // Eight codes of -1 are one number of -1.
    const at::Tensor wide = pixels.view(at::kLong);
    return at::constant_pad_nd(wide, {0, 0, padding[1], padding[1], padding[0], padding[0]}, -1)
        .view(at::kChar)
        .permute({0, 3, 1, 2});
  }
  return at::constant_pad_nd(signs, {padding[1], padding[1], padding[0], padding[0]}, -1)
      .contiguous(signs.suggest_memory_format());
}

std::tuple<at::Tensor, at::Tensor> float_conv_grads(const at::Tensor& g, const at::Tensor& values,
                                                    const at::Tensor& filter, const Movement& move, bool want_x,
                                                    bool want_weight) {
  const auto [up, grad_w, grad_bias] =
      at::convolution_backward(g, values, filter, at::OptionalIntArrayRef(), move.stride, move.padding, move.dilation,
                               /*transposed=*/false, at::IntArrayRef{0, 0}, move.groups, {want_x, want_weight, false});
  return {up, grad_w};
}

}  // namespace bie::ops
