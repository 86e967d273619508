// The kernels of weight_only_gemm and weight_only_q8, float32 in and out, weights prepacked, against torch's float32
// product and its 4-bit one.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_convert_weight_to_int4pack_for_cpu.h>
#include <ATen/ops/_weight_int4pack_mm_for_cpu.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/util/StringUtil.h>

#include <stdexcept>

#include "bench/race.h"
#include "bie/kernels/huge_pages.h"
#include "bie/kernels/weight_only_q8.h"

namespace bie::bench {
namespace {

/// A weight with scales of 16 bits and whole zeros, as GPTQ has them.
struct Operands {
  std::int64_t m, k, n;
  int bits;
  std::int64_t group, groups = (k + group - 1) / group;
  kernels::BitRun run{bits, k};
  at::Tensor x = at::randn({m, k}),
             words = at::randint(-2147483647, 2147483647, {kernels::run_words(bits, k), n}, at::kInt),
             scales = at::rand({groups, n}).mul(0.01).add(0.005).to(at::kHalf),
             zeros = at::full({groups, n}, 1 << (bits - 1), at::kInt), group_of = at::empty({k}, at::kInt);

  Operands(const std::vector<std::int64_t>& s)  // NOLINT(google-explicit-constructor)
      : m(s[0]), k(s[1]), n(s[2]), bits(static_cast<int>(s[3])), group(s[4]) {
    for (std::int64_t i = 0; i < k; ++i)
      group_of.mutable_data_ptr<std::int32_t>()[i] = static_cast<std::int32_t>(i / group);
  }
  kernels::PackedWeight packed() const {
    return {k,
            n,
            groups,
            static_cast<const std::uint32_t*>(words.const_data_ptr()),
            &run,
            1,
            group_of.const_data_ptr<std::int32_t>(),
            nullptr,
            scales.const_data_ptr(),
            kernels::Dtype::f16,
            kernels::Offset::zero,
            zeros.const_data_ptr()};
  }
};

at::Tensor prepacked(const kernels::WeightOnlyGemmKernel& kernel, const Operands& o) {
  const auto bytes = static_cast<std::int64_t>(kernel.packed_bytes(o.packed()));
  at::Tensor panels = at::empty({bytes}, at::kByte);
  kernels::prefer_huge_pages(panels.mutable_data_ptr(), static_cast<std::size_t>(bytes));
  kernel.prepack(o.packed(), panels.mutable_data_ptr(), kernels::serial());
  return panels;
}

void run_kernel(const kernels::WeightOnlyGemmKernel& kernel, const Operands& o, const at::Tensor& panels,
                const at::Tensor& y) {
  const kernels::Status status = kernel.run(
      {y.size(0), o.n, o.k}, {o.x.const_data_ptr(), kernels::Dtype::f32, 4 * o.k, nullptr}, panels.const_data_ptr(),
      {y.mutable_data_ptr(), kernels::Dtype::f32, 4 * o.n, nullptr}, kernels::serial());
  if (status != kernels::Status::ok)
    throw std::runtime_error(std::string(kernel.name) + ": " + kernels::describe(status));
}

/// The first row of the result is the reference's.
void check(const kernels::WeightOnlyGemmKernel& kernel, const kernels::WeightOnlyGemmKernel& reference,
           const Operands& o, const at::Tensor& panels) {
  const at::Tensor mine = at::empty({1, o.n}), wanted = at::empty_like(mine);
  run_kernel(kernel, o, panels, mine);
  run_kernel(reference, o, prepacked(reference, o), wanted);
  if (!at::equal(mine, wanted)) throw std::runtime_error(std::string(kernel.name) + " differs from the reference");
}

}  // namespace

void bench_weight_only(const Settings& settings, nlohmann::json& results) {
  const at::NoGradGuard no_grad;
  for (const auto& [s, source] : read_shapes("weight_only.txt", 5)) {
    const std::string title =
        c10::str("weight-only m=", s[0], " k=", s[1], " n=", s[2], " bits=", s[3], " group=", s[4]);
    if (title.find(settings.filter) == std::string::npos) continue;
    const Operands o(s);
    const at::Tensor w = at::randn({o.n, o.k}), y = at::empty({o.m, o.n});
    std::vector<Contender> contenders{{"torch float32", [&] { at::linear(o.x, w); }}};
    const at::Tensor half = o.x.to(at::kBFloat16);
    at::Tensor tiles, numbers;
    if (o.bits == 4 && o.n % 16 == 0 && o.group % 32 == 0 && o.group <= 256 && o.k % o.group == 0) {
      tiles = at::_convert_weight_to_int4pack_for_cpu(at::randint(0, 16, {o.n, o.k}, at::kInt), 1);
      numbers = at::rand({o.groups, o.n, 2}).to(at::kBFloat16);
      contenders.push_back(
          {"torch int4pack bfloat16", [&] { at::_weight_int4pack_mm_for_cpu(half, tiles, o.group, numbers); }});
    }
    const auto add = [&](const kernels::Table<kernels::WeightOnlyGemmKernel>& table, const auto& unit) {
      for (const kernels::WeightOnlyGemmKernel& kernel : table) {
        if (!kernels::host().isas.has(kernel.isa) || unit(kernel.isa) == Unit::none) continue;
        const at::Tensor panels = prepacked(kernel, o);
        check(kernel, table.back(), o, panels);
        contenders.push_back(
            {kernel.name,
             [&o, &kernel, &y, panels] { run_kernel(kernel, o, panels, y); },
             {unit(kernel.isa), static_cast<double>(o.m * o.k * o.n), panels.const_data_ptr(), panels.numel()}});
      }
    };
    add(kernels::weight_only_gemm_table(), float_unit_of);
    add(kernels::weight_only_q8_table(),
        [&](kernels::Isa isa) { return unit_of(isa, o.bits == 8 ? kernels::Dtype::s8 : kernels::Dtype::s4); });
    const nlohmann::json shape = {{"m", s[0]},    {"k", s[1]},     {"n", s[2]},
                                  {"bits", s[3]}, {"group", s[4]}, {"source", source}};
    results.push_back(report(shape, title, contenders, race(contenders, settings.seconds)));
  }
}

}  // namespace bie::bench
