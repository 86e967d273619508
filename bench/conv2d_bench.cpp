// The integer convolutions, in one group and in several, every kernel, batch 1, float32 in and out (bias and quantising
// included), in both layouts.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/util/StringUtil.h>

#include <stdexcept>
#include <vector>

#include "bench/race.h"
#include "bench/torch_rivals.h"
#include "bie/kernels/registry.h"

namespace bie::bench {
namespace {

at::Tensor prepacked(const kernels::Conv2dKernel& kernel, const kernels::Conv2dShape& shape, const at::Tensor& weight) {
  at::Tensor panels = at::empty({static_cast<std::int64_t>(kernel.packed_bytes(shape))}, at::kByte);
  kernel.prepack(weight.const_data_ptr(), shape, panels.mutable_data_ptr(), kernels::serial());
  return panels;
}

/// x and y in one memory format, which is the layout that runs.
void run_kernel(const kernels::Conv2dKernel& kernel, const kernels::Conv2dShape& shape, const at::Tensor& x,
                const at::Tensor& bias, const at::Tensor& panels, const at::Tensor& y) {
  const kernels::Dtype out = y.scalar_type() == at::kInt ? kernels::Dtype::s32 : kernels::Dtype::f32;
  const auto layout = x.is_contiguous() ? kernels::ImageLayout::nchw : kernels::ImageLayout::nhwc;
  const kernels::Status status =
      kernel.run(shape, {x.const_data_ptr(), kernels::Dtype::f32, layout, bias.const_data_ptr<float>(), 0.05f},
                 panels.const_data_ptr(), {y.mutable_data_ptr(), out, layout, 0.01f}, kernels::serial());
  if (status != kernels::Status::ok)
    throw std::runtime_error(std::string(kernel.name) + ": " + kernels::describe(status));
}

}  // namespace

void bench_conv2d(const Settings& settings, nlohmann::json& results) {
  const at::NoGradGuard no_grad;
  std::vector<Shape> shapes = read_shapes("conv2d.txt", 7);
  for (Shape& shape : shapes) shape.sizes.push_back(1);
  for (const Shape& shape : read_shapes("grouped_conv2d.txt", 8)) shapes.push_back(shape);
  for (const auto& [s, source] : shapes) {
    const std::int64_t c = s[0], o = s[3], side = s[4], stride = s[5], pad = s[6], groups = s[7];
    const std::string kind = groups == 1 ? c10::str("conv2d ", side, "x", side)
                                         : c10::str("convolution ", side, "x", side, " in ", groups, " groups");
    const std::string title =
        c10::str(kind, " ", c, " to ", o, " channels, image ", s[1], "x", s[2], ", stride ", stride);
    if (title.find(settings.filter) == std::string::npos) continue;
    kernels::Conv2dShape padded_with_zero{1, c, s[1], s[2], o, side, side, stride, stride, pad, pad};
    padded_with_zero.groups = groups;
    const at::Tensor x = at::randn({1, c, s[1], s[2]}), bias = at::randn({c}),
                     w = at::randn({o, c / groups, side, side});
    const at::Tensor codes = at::randint(0, 256, {o, c / groups, side, side}, at::kByte);
    kernels::Conv2dShape padded_with_minus_one = padded_with_zero;  // as layers of signs do
    padded_with_minus_one.pad_code = -1;
    const at::Tensor y = at::empty({1, o, padded_with_zero.out_h(), padded_with_zero.out_w()});
    std::vector<Contender> contenders{{"torch float32", [&] { at::conv2d(x, w, {}, stride, pad, 1, groups); }}};
    add_conv2d_rivals(x, w, stride, pad, groups, contenders);
    struct Case {
      const kernels::Products& products;
      const kernels::Conv2dShape& shape;
      const char* note;
    };
    std::vector<Case> cases;
    for (const kernels::Products& products : kernels::all_products()) {
      const bool signs = products.code == kernels::Dtype::bits;
      cases.push_back({products, signs ? padded_with_minus_one : padded_with_zero, ""});
      if (signs && pad != 0) cases.push_back({products, padded_with_zero, " pad 0"});
    }
    for (const auto& [products, shape, note] : cases) {
      const kernels::Conv2dTable& table = products.conv2d;
      const kernels::Dtype code = products.code;
      for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
        const at::Tensor image = x.contiguous(format), out = at::empty_like(y, y.options(), format);
        const at::Tensor wanted = at::empty_like(out, at::kInt), mine = at::empty_like(wanted);
        run_kernel(table.back(), shape, image, bias, prepacked(table.back(), shape, codes), wanted);
        for (const kernels::Conv2dKernel& kernel : table) {
          if (!kernels::fits(kernel, shape, kernels::host().isas) || kernel.isa == kernels::Isa::reference) continue;
          const at::Tensor panels = prepacked(kernel, shape, codes);
          run_kernel(kernel, shape, image, bias, panels, mine);
          if (!at::equal(mine, wanted))
            throw std::runtime_error(std::string(kernel.name) + " differs from the reference");
          contenders.push_back({c10::str(kernel.name, note, format == at::MemoryFormat::Contiguous ? "" : " NHWC"),
                                [=, &kernel, &shape = shape] { run_kernel(kernel, shape, image, bias, panels, out); },
                                {unit_of(kernel.isa, code), static_cast<double>(y.numel() * shape.depth()),
                                 panels.const_data_ptr(), panels.numel()}});
        }
      }
    }
    const nlohmann::json sizes = {{"in_c", c},  {"height", s[1]},   {"width", s[2]},
                                  {"out_c", o}, {"kernel", side},   {"stride", stride},
                                  {"pad", pad}, {"groups", groups}, {"source", source}};
    results.push_back(report(sizes, title, contenders, race(contenders, settings.seconds)));
  }
}

}  // namespace bie::bench
