#include "ops/backend/cuda/products.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include "ops/tuning/cuda_tuning.h"

namespace bie::ops {
namespace {

/// The row an id names, or the choice: what was found fastest, else the table's.
const kernels::cuda::GemmKernel& row_of(const char* op, const kernels::cuda::GemmTable& table,
                                        const kernels::GemmShape& shape, int device, std::int64_t kernel_id) {
  const kernels::cuda::Gpu& gpu = gpu_of(op, device);
  const std::int64_t index = kernel_id - first_cuda_kernel_id;
  if (index >= 0 && index < table.count && kernels::cuda::fits(table.rows[index], shape, gpu)) return table.rows[index];
  if (kernel_id < 0 || kernel_id >= first_cuda_kernel_id) warn_of_id(op, shape, kernel_id);
  if (const auto* row = tuned_row(table, shape, gpu)) return *row;
  return kernels::cuda::choose(table, shape, gpu);
}

// Panels are [rows, bytes of a row] without a header, which nobody could read without waiting: their size is what is
// checked, and all rows of a table read the same.
void check_panels(const char* op, const at::Tensor& panels, at::Device device, std::int64_t rows,
                  std::int64_t row_bytes) {
  TORCH_CHECK_VALUE(panels.scalar_type() == at::kByte && panels.is_contiguous() && panels.device() == device &&
                        panels.dim() == 2 && panels.size(0) == rows && panels.size(1) == row_bytes,
                    op, ": panels are ", panels.sizes(), " of ", panels.scalar_type(), " on ", panels.device(), ", [",
                    rows, ", ", row_bytes, "] made by the prepack operator on ", device, " is wanted");
  TORCH_CHECK_VALUE(reinterpret_cast<std::uintptr_t>(panels.const_data_ptr()) % 16 == 0, op,
                    ": panels are not aligned to 16 bytes");
}

/// A weight as the kernels take it, and what keeps it alive.
struct CudaPanels {
  at::Tensor data, flags;
  int flag_count = 0;

  kernels::cuda::Panels view() const {
    return {data.const_data_ptr(), flags.defined() ? flags.const_data_ptr<int>() : nullptr, flag_count};
  }
};

/// The panels that came with the weight, or new ones: prepack(data, flags, flag count) writes them. Flags are for float
/// weights: whoever gave codes has looked at them.
template <class Prepack>
CudaPanels panels_of(const char* op, const Weight& w, std::int64_t rows, std::int64_t row_bytes,
                     const Prepack& prepack) {
  if (w.panels.defined()) {
    check_panels(op, w.panels, w.panels.device(), rows, row_bytes);
    return {w.panels, {}};
  }
  CudaPanels panels{at::empty({rows, row_bytes}, w.values.options().dtype(at::kByte)), {}};
  int* flags = nullptr;
  if (kernels::is_float(w.dtype)) {
    panels.flags = at::empty({kernels::cuda::most_flags}, w.values.options().dtype(at::kInt));
    flags = panels.flags.mutable_data_ptr<int>();
  }
  check_status(op, prepack(panels.data.mutable_data_ptr(), flags, &panels.flag_count));
  if (flags == nullptr) panels.flag_count = 0;
  return panels;
}

CudaPanels gemm_panels(const char* op, const kernels::cuda::GemmTable& table, std::int64_t n, std::int64_t k,
                       const Weight& w) {
  return panels_of(op, w, n, table.panel_row(k), [&](void* data, int* flags, int* flag_count) {
    return table.prepack(
        {w.values.const_data_ptr(), w.dtype, kernels::row_bytes(w.dtype, k), nullptr, w.scale.scalar(), w.floor}, n, k,
        data, flags, flag_count, cuda_queue(w.values.device()));
  });
}

CudaPanels conv2d_panels(const char* op, const kernels::cuda::Conv2dTable& table, const kernels::Conv2dShape& shape,
                         const Weight& w) {
  return panels_of(op, w, shape.out_c, table.panel_row(shape), [&](void* data, int* flags, int* flag_count) {
    return table.prepack({w.values.const_data_ptr(), w.dtype, w.scale.scalar(), w.floor}, shape, data, flags,
                         flag_count, cuda_queue(w.values.device()));
  });
}

/// Runs the row, or the one that runs everywhere where the runtime refuses to start it.
template <class Table, class Row, class Run>
void run_row(const char* op, const Table& table, const Row& row, const Run& run) {
  kernels::Status status = run(row);
  if (status == kernels::Status::launch_failed && &row != &table.back()) {
    TORCH_WARN_ONCE(op, ": the CUDA runtime refused to start ", row.name, ", ", table.back().name, " runs instead");
    status = run(table.back());
  }
  check_status(op, status);
}

}  // namespace

const kernels::cuda::Gpu& gpu_of(const char* op, int device) {
  const kernels::cuda::Gpu* facts = nullptr;
  check_status(op, kernels::cuda::gpu(device, &facts));
  return *facts;
}

void run_gemm_cuda(const char* op, const kernels::cuda::GemmTable& table, const kernels::GemmShape& shape,
                   const Rows& x, kernels::Dtype dtype, const Quantiser& q, const Weight& weight, const at::Tensor& out,
                   std::int64_t kernel_id) {
  const at::Device device = out.device();
  const c10::DeviceGuard guard(device);
  const CudaPanels panels = gemm_panels(op, table, shape.n, shape.k, weight);
  const at::Tensor workspace = at::empty({table.workspace(shape.m, shape.k)}, out.options().dtype(at::kByte));
  const kernels::Dtype to = out_dtype(out);
  run_row(op, table, row_of(op, table, shape, device.index(), kernel_id), [&](const auto& row) {
    return row.run(
        shape, {x.data.const_data_ptr(), dtype, x.stride, q.bias_data(), q.scale_a.scalar(), q.floor}, panels.view(),
        {out.mutable_data_ptr(), to, kernels::row_bytes(to, shape.n), q.scale_a.scalar(), q.scale_w.scalar()},
        workspace.mutable_data_ptr(), cuda_queue(device));
  });
}

void run_conv2d_cuda(const char* op, const kernels::cuda::Conv2dTable& table, const kernels::Conv2dShape& shape,
                     const at::Tensor& x, const Quantiser& q, const Weight& weight, const at::Tensor& out) {
  const at::Device device = out.device();
  const c10::DeviceGuard guard(device);
  const CudaPanels panels = conv2d_panels(op, table, shape, weight);
  const at::Tensor workspace = at::empty({table.workspace(shape)}, out.options().dtype(at::kByte));
  run_row(op, table, kernels::cuda::choose(table, shape, gpu_of(op, device.index())), [&](const auto& row) {
    return row.run(
        shape, {x.const_data_ptr(), kernel_dtype(op, "x", x), layout_of(x), q.bias_data(), q.scale_a.scalar(), q.floor},
        panels.view(), {out.mutable_data_ptr(), out_dtype(out), layout_of(out), q.scale_a.scalar(), q.scale_w.scalar()},
        workspace.mutable_data_ptr(), cuda_queue(device));
  });
}

at::Tensor prepack_gemm_cuda(const char* op, const kernels::cuda::GemmTable& table, const at::Tensor& weight,
                             kernels::Dtype dtype, std::int64_t n, std::int64_t k) {
  const c10::DeviceGuard guard(weight.device());
  return gemm_panels(op, table, n, k, {weight.contiguous(), dtype, {}, 1, {}}).data;
}

at::Tensor prepack_conv2d_cuda(const char* op, const kernels::cuda::Conv2dTable& table, const at::Tensor& weight,
                               kernels::Dtype dtype, const kernels::Conv2dShape& shape) {
  const c10::DeviceGuard guard(weight.device());
  return conv2d_panels(op, table, shape, {weight.contiguous(), dtype, {}, 1, {}}).data;
}

}  // namespace bie::ops
