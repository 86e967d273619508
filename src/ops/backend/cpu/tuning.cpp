#include "ops/backend/cpu/tuning.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "ops/backend/cpu/backend.h"
#include "ops/backend/cpu/products.h"
#include "ops/backend/cpu/torch_parallel.h"
#include "ops/backend/kernel_ids.h"
#include "ops/backend/tuning.h"
#include "ops/checks.h"
#include "ops/tuning/tuning_file.h"

namespace bie::ops::cpu {
namespace {

constexpr double budget = 0.1;  // seconds for all kernels together
constexpr std::size_t repetitions = 15;

TuningKey key_of(const kernels::GemmTable& table, const kernels::GemmShape& shape, kernels::IsaSet isas) {
  std::string sets;
  for (const kernels::IsaFacts& f : kernels::isa_facts)
    if (isas.has(f.isa)) sets += c10::str(sets.empty() ? "" : "+", f.name);
  return {kernels::cpu_name(), sets, "-", table.back().name, "*", shape.n, shape.k};
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Runs of one kernel on zeros: the median of a few after a first one, or what `share` seconds allow.
double time_kernel(const char* op, const kernels::GemmKernel& kernel, kernels::Dtype code,
                   const kernels::GemmShape& shape, double share) {
  using kernels::Dtype;
  const at::Tensor x = at::zeros({shape.m, shape.k});
  const at::Tensor weight = at::zeros({shape.n, kernels::row_bytes(code, shape.k)}, at::kByte);
  const at::Tensor panels = at::empty({static_cast<std::int64_t>(kernel.packed_bytes(shape.n, shape.k))}, at::kByte);
  const at::Tensor y = at::empty({shape.m, shape.n});
  kernel.prepack(weight.const_data_ptr(), shape.n, shape.k, panels.mutable_data_ptr(), torch_parallel());
  const auto run = [&] {
    check_status(op,
                 kernel.run(shape, {x.const_data_ptr(), Dtype::f32, 4 * shape.k, nullptr, 1}, panels.const_data_ptr(),
                            {y.mutable_data_ptr(), Dtype::f32, 4 * shape.n, 1}, torch_parallel()));
  };
  const double start = seconds_now();
  run();
  double before = seconds_now();
  std::vector<double> times{before - start};
  // Calls shorter than the clock's own noise are timed several at once.
  const int calls = std::clamp(static_cast<int>(20e-6 / std::max(1e-9, times[0])), 1, 100);
  while (times.size() <= repetitions && before - start < share) {
    for (int i = 0; i < calls; ++i) run();
    const double after = seconds_now();
    times.push_back((after - before) / calls);
    before = after;
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

class CpuTuning final : public Tuning {
  Choice tune(const char* op, kernels::Dtype code, const kernels::GemmShape& shape, at::Device) const override {
    const kernels::GemmTable table = gemm_table(code);
    const kernels::IsaSet isas = host_isas(op);
    // Rows are linear in blocks of rows, panels and k: a cut of a large shape keeps their order.
    const kernels::GemmShape cut{std::min<std::int64_t>(shape.m, 128), std::min<std::int64_t>(shape.n, 512),
                                 std::min<std::int64_t>(shape.k, 4096)};
    const kernels::GemmShape probe{std::min<std::int64_t>(cut.m, 8), std::min<std::int64_t>(cut.n, 32), cut.k};
    const double probes = static_cast<double>(cut.m * cut.n) / static_cast<double>(probe.m * probe.n);

    std::vector<int> available;
    for (int i = 0; i < table.count; ++i)
      if (kernels::fits(table.best_first[i], shape, isas)) available.push_back(i);
    const double share = budget / static_cast<double>(available.size());
    int best = available.front();
    double best_time = 0;
    for (const int i : available) {
      if (available.size() == 1) break;
      const kernels::GemmKernel& kernel = table.best_first[i];
      // A kernel too slow for its share of the time cannot win against one that had run within its own.
      if (i != available.front() && time_kernel(op, kernel, code, probe, 0) * probes > std::max(share, best_time))
        continue;
      const double time = time_kernel(op, kernel, code, cut, share);
      if (i == available.front() || time < best_time) {
        best = i;
        best_time = time;
      }
    }
    remember_kernel(key_of(table, shape, isas), table.best_first[best].name);
    return {table.best_first[best].name, first_kernel_id + best};
  }
};

}  // namespace

const kernels::GemmKernel* tuned_kernel(const kernels::GemmTable& table, const kernels::GemmShape& shape,
                                        kernels::IsaSet isas) {
  if (!any_remembered()) return nullptr;
  const std::string name = remembered_kernel(key_of(table, shape, isas));
  for (const kernels::GemmKernel& kernel : table)
    if (name == kernel.name && kernels::fits(kernel, shape, isas)) return &kernel;
  return nullptr;
}

const Tuning& tuning() {
  static const CpuTuning it;
  return it;
}

}  // namespace bie::ops::cpu
