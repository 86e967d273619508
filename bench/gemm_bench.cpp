// The three integer GEMMs, every row, float32 in and out (bias, quantising or packing included), weights prepacked.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <memory>
#include <stdexcept>

#include "bench/race.h"
#include "bie/kernels/binary_gemm.h"
#include "bie/kernels/int4_gemm.h"
#include "bie/kernels/int8_gemm.h"

namespace bie::bench {
namespace {

struct Operands {
  kernels::GemmShape shape;
  at::Tensor x, bias, weight;  // weight: bytes enough for every width
};

at::Tensor prepacked(const kernels::GemmKernel& row, const Operands& o) {
  const auto bytes = static_cast<std::int64_t>(row.packed_bytes(o.shape.n, o.shape.k));
  at::Tensor panels = at::empty({bytes}, at::kByte);
  row.prepack(o.weight.const_data_ptr(), o.shape.n, o.shape.k, panels.mutable_data_ptr(), kernels::serial());
  return panels;
}

void run_row(const kernels::GemmKernel& row, const Operands& o, const at::Tensor& panels, const at::Tensor& y,
             std::int64_t rows) {
  const kernels::GemmShape shape{rows, o.shape.n, o.shape.k};
  const kernels::Dtype out = y.scalar_type() == at::kInt ? kernels::Dtype::s32 : kernels::Dtype::f32;
  const kernels::Status status =
      row.run(shape, {o.x.const_data_ptr(), kernels::Dtype::f32, 4 * shape.k, o.bias.const_data_ptr<float>(), 0.05f},
              panels.const_data_ptr(), {y.mutable_data_ptr(), out, 4 * shape.n, 0.01f}, kernels::serial());
  if (status != kernels::Status::ok) throw std::runtime_error(std::string(row.name) + ": " + kernels::describe(status));
}

/// The integers of the first rows equal the reference's.
void check(const kernels::GemmTable& table, const kernels::GemmKernel& row, const Operands& o) {
  const std::int64_t rows = std::min<std::int64_t>(o.shape.m, 7);
  const at::Tensor mine = at::empty({rows, o.shape.n}, at::kInt), wanted = at::empty_like(mine);
  run_row(row, o, prepacked(row, o), mine, rows);
  run_row(table.back(), o, prepacked(table.back(), o), wanted, rows);
  if (!at::equal(mine, wanted)) throw std::runtime_error(std::string(row.name) + " differs from the reference");
}

}  // namespace

void bench_gemm(double seconds, nlohmann::json& results) {
  const at::NoGradGuard no_grad;
  for (const auto& s : read_shapes("gemm.txt", 3)) {
    const Operands o{
        {s[0], s[2], s[1]}, at::randn({s[0], s[1]}), at::randn({s[1]}), at::randint(0, 256, {s[2], s[1]}, at::kByte)};
    const at::Tensor w = at::randn({s[2], s[1]}), y = at::empty({s[0], s[2]});
    std::vector<Contender> contenders{{"torch float32 linear", [&] { at::linear(o.x, w); }}};
    for (const kernels::GemmTable& table :
         {kernels::b1xb1_gemm_table(), kernels::s8xs8_gemm_table(), kernels::s4xs4_gemm_table()})
      for (const kernels::GemmKernel& row : table) {
        if (row.isa > kernels::host().isa || row.isa == kernels::Isa::reference) continue;
        check(table, row, o);
        contenders.push_back(
            {row.name, [&o, &row, &y, panels = prepacked(row, o)] { run_row(row, o, panels, y, o.shape.m); }});
      }
    const std::string name =
        "linear m=" + std::to_string(s[0]) + " k=" + std::to_string(s[1]) + " n=" + std::to_string(s[2]);
    for (const auto& line : report(name, race(contenders, seconds))) results.push_back(line);
  }
}

}  // namespace bie::bench
