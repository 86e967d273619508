// Which binary GEMM kernel is fastest for a shape: measured, where the table's order is a good guess.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "bie/kernels/binary_gemm.h"
#include "bie/ops.h"
#include "ops/bridge.h"
#include "ops/tuning.h"

namespace bie::ops {
namespace {

constexpr const char* op_name = "select_binary_kernel";
constexpr double budget = 0.05;  // seconds for all rows together
constexpr std::size_t repetitions = 5;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Runs of one row on zeros: the median of a few after a first one, or what `share` seconds allow.
double time_row(const kernels::GemmKernel& row, const kernels::GemmShape& shape, double share) {
  using kernels::Dtype;
  const at::Tensor x = at::zeros({shape.m, shape.k});
  const at::Tensor weight = at::zeros({shape.n, kernels::row_bytes(Dtype::bits, shape.k)}, at::kByte);
  const at::Tensor panels = at::empty({static_cast<std::int64_t>(row.packed_bytes(shape.n, shape.k))}, at::kByte);
  const at::Tensor y = at::empty({shape.m, shape.n});
  row.prepack(weight.const_data_ptr(), shape.n, shape.k, panels.mutable_data_ptr(), torch_parallel());
  const double start = seconds_now();
  std::vector<double> times;
  double before = start;
  do {
    check_status(op_name,
                 row.run(shape, {x.const_data_ptr(), Dtype::f32, 4 * shape.k, nullptr, 1}, panels.const_data_ptr(),
                         {y.mutable_data_ptr(), Dtype::f32, 4 * shape.n, 1}, torch_parallel()));
    const double after = seconds_now();
    times.push_back(after - before);
    before = after;
  } while (times.size() <= repetitions && before - start < share);
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

void check_sizes(const char* op, std::int64_t m, std::int64_t n, std::int64_t k) {
  TORCH_CHECK_VALUE(m > 0 && n > 0 && k > 0, op, ": m, n and k are ", m, ", ", n, " and ", k,
                    ", positive numbers are wanted");
}

std::int64_t tune_gemm_any(std::int64_t bits, std::int64_t m, std::int64_t n, std::int64_t k, at::Device device) {
  const char* op = "tune_gemm";
  check_sizes(op, m, n, k);
  TORCH_CHECK_VALUE(device.is_cuda(), op, ": the device is ", device, ", a CUDA device is wanted");
  if constexpr (with_cuda) {
    const int index = device.has_index() ? device.index() : c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice().index();
    switch (bits) {
      case 1: return first_cuda_kernel_id + tune(op, kernels::cuda::b1xb1_gemm_table(), {m, n, k}, index);
      case 4: return first_cuda_kernel_id + tune(op, kernels::cuda::s4xs4_gemm_table(), {m, n, k}, index);
      case 8: return first_cuda_kernel_id + tune(op, kernels::cuda::s8xs8_gemm_table(), {m, n, k}, index);
      default: TORCH_CHECK_VALUE(false, op, ": bits is ", bits, ", 1, 4 or 8 is wanted");
    }
  }
  TORCH_CHECK(false, op, ": this build of bie has no CUDA kernels; build it with -DBIE_CUDA=ON");
}

std::int64_t select_binary_kernel_any(std::int64_t m, std::int64_t n, std::int64_t k,
                                      std::optional<at::Device> device) {
  if (device && device->is_cuda()) return tune_gemm_any(1, m, n, k, *device);
  check_sizes(op_name, m, n, k);
  const kernels::GemmTable table = kernels::b1xb1_gemm_table();
  const kernels::IsaSet isas = host_isas(op_name);
  // Rows are linear in blocks of rows, panels and k: a cut of a large shape keeps their order.
  const kernels::GemmShape shape{m, n, k};
  const kernels::GemmShape cut{std::min<std::int64_t>(m, 128), std::min<std::int64_t>(n, 512),
                               std::min<std::int64_t>(k, 4096)};
  const kernels::GemmShape probe{std::min<std::int64_t>(m, 8), std::min<std::int64_t>(n, 32), cut.k};
  const double probes = static_cast<double>(cut.m * cut.n) / static_cast<double>(probe.m * probe.n);

  std::vector<int> available;
  for (int i = 0; i < table.count; ++i)
    if (kernels::fits(table.rows[i], shape, isas)) available.push_back(i);
  const double share = budget / static_cast<double>(available.size());
  int best = available.front();
  double best_time = 0;
  for (const int i : available) {
    if (available.size() == 1) break;
    const kernels::GemmKernel& row = table.rows[i];
    // A row too slow for its share of the time cannot win against one that had run within its own.
    if (i != available.front() && time_row(row, probe, 0) * probes > std::max(share, best_time)) continue;
    const double time = time_row(row, cut, share);
    if (i == available.front() || time < best_time) {
      best = i;
      best_time = time;
    }
  }
  return first_kernel_id + best;
}

}  // namespace

std::int64_t select_binary_kernel(std::int64_t m, std::int64_t n, std::int64_t k, std::optional<at::Device> device) {
  static const auto op = find_op<std::int64_t(std::int64_t, std::int64_t, std::int64_t, std::optional<at::Device>)>(
      "bie::select_binary_kernel");
  return op.call(m, n, k, device);
}

std::int64_t tune_gemm(std::int64_t bits, std::int64_t m, std::int64_t n, std::int64_t k, at::Device device) {
  static const auto op =
      find_op<std::int64_t(std::int64_t, std::int64_t, std::int64_t, std::int64_t, at::Device)>("bie::tune_gemm");
  return op.call(bits, m, n, k, device);
}

}  // namespace bie::ops

// No tensor tells a device, so there is no key to dispatch on.
TORCH_LIBRARY_IMPL(bie, CompositeExplicitAutograd, m) {
  m.impl("select_binary_kernel", bie::ops::select_binary_kernel_any);
  m.impl("tune_gemm", bie::ops::tune_gemm_any);
}
