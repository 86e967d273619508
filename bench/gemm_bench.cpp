// The integer GEMMs, every kernel, float32 in and out (bias, quantising or packing included), weights prepacked; and
// those "of codes" from bits or int8 to those of the next layer, as between the layers of a chain.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/util/StringUtil.h>

#include <memory>
#include <stdexcept>

#include "bench/race.h"
#include "bench/torch_rivals.h"
#include "bie/kernels/huge_pages.h"
#include "bie/kernels/registry.h"

namespace bie::bench {
namespace {

struct Operands {
  kernels::GemmShape shape;
  at::Tensor x, bias, next_bias, codes, weight;  // codes, weight: bytes enough for every width
};

at::Tensor prepacked(const kernels::GemmKernel& kernel, const Operands& o) {
  const auto bytes = static_cast<std::int64_t>(kernel.packed_bytes(o.shape.n, o.shape.k));
  at::Tensor panels = at::empty({bytes}, at::kByte);
  kernels::prefer_huge_pages(panels.mutable_data_ptr(), static_cast<std::size_t>(bytes));
  kernel.prepack(o.weight.const_data_ptr(), o.shape.n, o.shape.k, panels.mutable_data_ptr(), kernels::serial());
  return panels;
}

void run_kernel(const kernels::GemmKernel& kernel, const Operands& o, const at::Tensor& panels, const at::Tensor& y,
                std::int64_t rows) {
  const kernels::GemmShape shape{rows, o.shape.n, o.shape.k};
  const kernels::Dtype out = y.scalar_type() == at::kInt ? kernels::Dtype::s32 : kernels::Dtype::f32;
  const kernels::Status status =
      kernel.run(shape, {o.x.const_data_ptr(), kernels::Dtype::f32, 4 * shape.k, o.bias.const_data_ptr<float>(), 0.05f},
                 panels.const_data_ptr(), {y.mutable_data_ptr(), out, 4 * shape.n, 0.01f}, kernels::serial());
  if (status != kernels::Status::ok)
    throw std::runtime_error(std::string(kernel.name) + ": " + kernels::describe(status));
}

/// Codes of x, bits or int8, to codes of the next layer.
void run_chained(const kernels::GemmKernel& kernel, const Operands& o, kernels::Dtype code, const at::Tensor& panels,
                 const at::Tensor& x, const at::Tensor& y) {
  const kernels::GemmOutput out{y.mutable_data_ptr(),
                                code,
                                kernels::row_bytes(code, o.shape.n),
                                0.01f,
                                o.next_bias.const_data_ptr<float>(),
                                0.05f};
  const kernels::Status status =
      kernel.run(o.shape, {x.const_data_ptr(), code, kernels::row_bytes(code, o.shape.k), nullptr, 1},
                 panels.const_data_ptr(), out, kernels::serial());
  if (status != kernels::Status::ok)
    throw std::runtime_error(std::string(kernel.name) + ": " + kernels::describe(status));
}

/// The integers of the first rows equal the reference's.
void check(const kernels::GemmTable& table, const kernels::GemmKernel& kernel, const Operands& o) {
  const std::int64_t rows = std::min<std::int64_t>(o.shape.m, 7);
  const at::Tensor mine = at::empty({rows, o.shape.n}, at::kInt), wanted = at::empty_like(mine);
  run_kernel(kernel, o, prepacked(kernel, o), mine, rows);
  run_kernel(table.back(), o, prepacked(table.back(), o), wanted, rows);
  if (!at::equal(mine, wanted)) throw std::runtime_error(std::string(kernel.name) + " differs from the reference");
}

}  // namespace

void bench_gemm(const Settings& settings, nlohmann::json& results) {
  const at::NoGradGuard no_grad;
  for (const auto& [s, source] : read_shapes("gemm.txt", 3)) {
    const std::string title = c10::str("linear m=", s[0], " k=", s[1], " n=", s[2]);
    if (title.find(settings.filter) == std::string::npos) continue;
    const Operands o{{s[0], s[2], s[1]},
                     at::randn({s[0], s[1]}),
                     at::randn({s[1]}),
                     at::randn({s[2]}),
                     at::randint(0, 256, {s[0], s[1]}, at::kByte),
                     at::randint(0, 256, {s[2], s[1]}, at::kByte)};
    const at::Tensor w = at::randn({s[2], s[1]}), y = at::empty({s[0], s[2]}),
                     next = at::empty({s[0], s[2]}, at::kByte);
    std::vector<Contender> contenders{{"torch float32", [&] { at::linear(o.x, w); }}};
    add_linear_rivals(o.x, w, contenders);
    for (const kernels::Products& products : kernels::all_products()) {
      const kernels::GemmTable& table = products.gemm;
      const kernels::Dtype code = products.code;
      for (const kernels::GemmKernel& kernel : table) {
        if (!kernels::fits(kernel, o.shape, kernels::host().isas) || kernel.isa == kernels::Isa::reference) continue;
        check(table, kernel, o);
        const at::Tensor panels = prepacked(kernel, o);
        const Work work{unit_of(kernel.isa, code), static_cast<double>(s[0] * s[1] * s[2]), panels.const_data_ptr(),
                        panels.numel()};
        contenders.push_back(
            {kernel.name, [&o, &kernel, &y, panels] { run_kernel(kernel, o, panels, y, o.shape.m); }, work});
        if (code == kernels::Dtype::s4) continue;     // no result is nibbles
        const at::Tensor own = prepacked(kernel, o);  // panels of the kernel before would still be in the cache
        contenders.push_back({std::string(kernel.name) + " of codes",
                              [&o, &kernel, &next, own, code] { run_chained(kernel, o, code, own, o.codes, next); },
                              {work.unit, work.products, own.const_data_ptr(), own.numel()}});
      }
    }
    const nlohmann::json shape = {{"m", s[0]}, {"k", s[1]}, {"n", s[2]}, {"source", source}};
    results.push_back(report(shape, title, contenders, race(contenders, settings.seconds)));
  }
}

}  // namespace bie::bench
