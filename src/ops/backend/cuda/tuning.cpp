#include "ops/backend/cuda/tuning.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "bie/kernels/cuda/timing.h"
#include "ops/backend/backend.h"
#include "ops/backend/cuda/call.h"
#include "ops/backend/cuda/products.h"
#include "ops/backend/kernel_ids.h"
#include "ops/backend/tuning.h"
#include "ops/tuning/tuning_file.h"

namespace bie::ops::cuda {
namespace {

constexpr double budget_us = 100000;

TuningKey key_of(const kernels::cuda::GemmTable& table, const kernels::GemmShape& shape,
                 const kernels::cuda::Gpu& gpu) {
  std::int64_t m = 1;
  while (m < shape.m) m *= 2;
  return {gpu.name, std::to_string(gpu.sm), std::to_string(gpu.driver), table.back().name, std::to_string(m), shape.n,
          shape.k};
}

/// Numbers of every kind, without touching a generator: zeros would run faster than data does.
at::Tensor filler(std::int64_t bytes, at::Device device) {
  return at::arange(bytes, at::TensorOptions(at::kInt).device(device))
      .mul_(2654435)
      .bitwise_right_shift_(7)
      .to(at::kByte);
}

class CudaTuning final : public Tuning {
  Choice tune(const char* op, kernels::Dtype code, const kernels::GemmShape& shape, at::Device device) const override {
    const kernels::cuda::GemmTable table = gemm_table(code);
    const at::Device where = device.has_index()
                                 ? device
                                 : at::Device(c10::kCUDA, c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice().index());
    TORCH_CHECK_VALUE(shape.k <= table.max_k, op, ": k: expected at most ", table.max_k, ", got ", shape.k);
    const c10::DeviceGuard guard(where);
    const kernels::cuda::Gpu& gpu = gpu_of(op, where.index());
    const kernels::cuda::Queue queue = cuda_queue(where);
    const auto [m, n, k] = shape;
    const at::Tensor x = filler(2 * m * k, where).bitwise_and_(0x3b).view(at::kHalf);  // finite float16
    const at::Tensor panels = filler(n * table.panel_row(k), where);
    const at::Tensor workspace = at::empty({table.workspace(m, k)}, x.options().dtype(at::kByte));
    const at::Tensor y = at::empty({m, n}, x.options());
    struct Call {
      const kernels::cuda::GemmKernel* kernel;
      kernels::GemmShape shape;
      kernels::cuda::Rows x;
      kernels::cuda::Panels panels;
      kernels::cuda::GemmOutput y;
      void* workspace;
      kernels::cuda::Queue queue;
    } call{nullptr,
           shape,
           {x.const_data_ptr(), kernels::Dtype::f16, 2 * k, nullptr, {nullptr, 0.1f}, 1e-5f},
           {panels.const_data_ptr()},
           {y.mutable_data_ptr(), kernels::Dtype::f16, 2 * n, {nullptr, 1}, {nullptr, 1}},
           workspace.mutable_data_ptr(),
           queue};
    int best = -1;
    double best_us = 0;
    kernels::Status failed = kernels::Status::no_device;
    const int candidates = static_cast<int>(std::count_if(
        table.begin(), table.end(), [&](const auto& kernel) { return kernels::cuda::fits(kernel, shape, gpu); }));
    for (int i = 0; i < table.count; ++i) {
      if (!kernels::cuda::fits(table.best_first[i], shape, gpu)) continue;
      call.kernel = &table.best_first[i];
      double us = 0;
      const kernels::Status status = kernels::cuda::median_time(
          [](void* context) {
            const Call& c = *static_cast<const Call*>(context);
            return c.kernel->run(c.shape, c.x, c.panels, c.y, c.workspace, c.queue);
          },
          &call, budget_us / candidates, queue, &us);
      if (status != kernels::Status::ok) {  // a kernel that does not start is not chosen
        failed = status;
        continue;
      }
      if (best < 0 || us < best_us) {
        best = i;
        best_us = us;
      }
    }
    if (best < 0) check_status(op, failed);
    remember_kernel(key_of(table, shape, gpu), table.best_first[best].name);
    return {table.best_first[best].name, first_cuda_kernel_id + best};
  }
};

}  // namespace

const kernels::cuda::GemmKernel* tuned_kernel(const kernels::cuda::GemmTable& table, const kernels::GemmShape& shape,
                                              const kernels::cuda::Gpu& gpu) {
  if (!any_remembered()) return nullptr;
  const std::string name = remembered_kernel(key_of(table, shape, gpu));
  for (const auto& kernel : table)
    if (name == kernel.name && kernels::cuda::fits(kernel, shape, gpu)) return &kernel;
  return nullptr;
}

const Tuning& tuning() {
  static const CudaTuning it;
  return it;
}

}  // namespace bie::ops::cuda
