#include "ops/backend/cuda/products.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <c10/core/DeviceGuard.h>

#include <limits>

#include "bie/kernels/cuda/registry.h"
#include "bie/ops.h"
#include "ops/backend/backend.h"
#include "ops/backend/cuda/call.h"
#include "ops/backend/cuda/tuning.h"
#include "ops/backend/kernel_ids.h"
#include "ops/conv2d/conv2d_geometry.h"
#include "ops/matmul/gemm_batch.h"

namespace bie::ops::cuda {
namespace {

/// The kernel an id names, or the choice: what was found fastest, else the table's.
const kernels::cuda::GemmKernel& row_of(const char* op, const kernels::cuda::GemmTable& table,
                                        const kernels::GemmShape& shape, int device, std::int64_t kernel_id) {
  const kernels::cuda::Gpu& gpu = gpu_of(op, device);
  const std::int64_t index = kernel_id - first_cuda_kernel_id;
  if (index >= 0 && index < table.count && kernels::cuda::fits(table.best_first[index], shape, gpu))
    return table.best_first[index];
  if (kernel_id < 0 || kernel_id >= first_cuda_kernel_id) warn_of_id(op, shape, kernel_id);
  if (const auto* kernel = tuned_kernel(table, shape, gpu)) return *kernel;
  return kernels::cuda::choose(table, shape, gpu);
}

// Panels are [rows, bytes of a row] without a header, which could not be read without waiting. Only their size is
// checked; all kernels of a table read the same panels.
void check_panels(const char* op, const at::Tensor& panels, at::Device device, std::int64_t rows,
                  std::int64_t row_bytes) {
  TORCH_CHECK_VALUE(panels.scalar_type() == at::kByte && panels.is_contiguous() && panels.device() == device &&
                        panels.dim() == 2 && panels.size(0) == rows && panels.size(1) == row_bytes,
                    op, ": panels: expected [", rows, ", ", row_bytes, "] made by the prepack operator on ", device,
                    ", got ", panels.sizes(), " of ", panels.scalar_type(), " on ", panels.device());
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
/// weights; codes were checked before.
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

/// Runs the kernel, or the one that runs everywhere where the runtime refuses to start it.
template <class Table, class Kernel, class Run>
void run_kernel(const char* op, const Table& table, const Kernel& kernel, const Run& run) {
  kernels::Status status = run(kernel);
  if (status == kernels::Status::launch_failed && &kernel != &table.back()) {
    TORCH_WARN_ONCE(op, ": the CUDA runtime refused to start ", kernel.name, ", ", table.back().name, " runs instead");
    status = run(table.back());
  }
  check_status(op, status);
}

kernels::cuda::Conv2dTable conv2d_table(kernels::Dtype code, const kernels::Conv2dShape& s) {
  const kernels::cuda::Products& products = kernels::cuda::products_of(code);
  return kernels::cuda::has_small_groups(s) ? products.grouped_conv2d : products.conv2d;
}

// Small groups have kernels of their own. The kernels of one group read all channels of a pixel and pad bits with -1.
// So convolutions with larger groups, and signs of one group with zero padding, run on codes of one byte and of one
// group.

bool runs_on_codes(kernels::Dtype code, const kernels::Conv2dShape& s) {
  return code == kernels::Dtype::bits && (s.groups != 1 || s.pad_code != -1);
}

/// bit(t) as int8 +1 and -1.
at::Tensor sign_codes(const at::Tensor& t) { return t.ge(0).to(at::kChar).mul_(2).sub_(1); }

/// The filter in the form that is to be arranged, of one group.
Weight joined(Weight w, const kernels::Conv2dShape& s, bool of_signs) {
  if (w.panels.defined()) return w;
  const std::int64_t filter[] = {s.out_c, s.in_c / s.groups, s.kernel_h, s.kernel_w};
  if (w.dtype == kernels::Dtype::bits)
    w.values = unpack_signs(w.values.reshape({s.out_c, (s.depth() + 7) / 8}), s.depth());
  else if (of_signs)
    w.values = sign_codes(w.values);
  else if (w.dtype == kernels::Dtype::s4)
    w.values = unpack_int4(w.values.reshape({s.out_c, (s.depth() + 1) / 2}), s.depth());
  if (of_signs || !kernels::is_float(w.dtype)) w.dtype = kernels::Dtype::s8;
  w.values = one_group(w.values.reshape(filter), s.groups);
  return w;
}

/// The activation of signs as codes, every result NaN where x or the bias holds NaN or infinity.
at::Tensor signs_of_image(const at::Tensor& x, Quantiser* q) {
  at::Tensor xs = x.to(at::kFloat);
  if (q->bias.defined()) xs = xs.add(q->bias.view({1, -1, 1, 1}));
  const at::Tensor scale =
      q->scale_a.device.defined() ? q->scale_a.device : at::full({}, q->scale_a.value, xs.options());
  q->scale_a.device = at::where(xs.isfinite().all(), scale, std::numeric_limits<float>::quiet_NaN()).to(at::kFloat);
  q->bias = at::Tensor();
  return sign_codes(xs).contiguous(x.suggest_memory_format());
}

class CudaProducts final : public Products {
  void gemm(const char* op, kernels::Dtype code, const kernels::GemmShape& shape, const Rows& x, kernels::Dtype dtype,
            const Quantiser& q, const Weight& weight, const at::Tensor& out, std::int64_t kernel_id) const override {
    const kernels::cuda::GemmTable table = gemm_table(code);
    const at::Device device = out.device();
    const c10::DeviceGuard guard(device);
    const CudaPanels panels = gemm_panels(op, table, shape.n, shape.k, weight);
    const at::Tensor workspace = at::empty({table.workspace(shape.m, shape.k)}, out.options().dtype(at::kByte));
    const kernels::Dtype to = out_dtype(out);
    run_kernel(op, table, row_of(op, table, shape, device.index(), kernel_id), [&](const auto& kernel) {
      return kernel.run(
          shape, {x.data.const_data_ptr(), dtype, x.stride, q.bias_data(), q.scale_a.scalar(), q.floor}, panels.view(),
          {out.mutable_data_ptr(), to, kernels::row_bytes(to, shape.n), q.scale_a.scalar(), q.scale_w.scalar()},
          workspace.mutable_data_ptr(), cuda_queue(device));
    });
  }

  void gemm_batch(const char* op, kernels::Dtype code, const GemmBatch& batch, const at::Tensor& x, const Quantiser& q,
                  const Weight& y, const at::Tensor& out) const override {
    const BatchRows rows(batch, x);
    const std::vector<std::int64_t> y_of = batch.y_numbers();
    const kernels::GemmShape& s = batch.shape;
    const kernels::Dtype from = kernel_dtype(op, "x", rows.data);
    Weight one = y;
    for (std::int64_t i = 0; i < batch.count(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const at::Tensor data =
          at::as_strided(rows.data, {s.m, s.k}, {rows.stride, 1}, rows.data.storage_offset() + rows.offsets[at]);
      one.values = y.values.view({-1, s.n, y.values.size(-1)}).select(0, y_of[at]);
      gemm(op, code, s, {data, s.m, kernels::row_bytes(from, rows.stride)}, from, q, one, out.select(0, i), 0);
    }
  }

  void conv2d(const char* op, kernels::Dtype code, const kernels::Conv2dShape& s, const at::Tensor& x,
              const Quantiser& q, const Weight& weight, const at::Tensor& out) const override {
    kernels::Conv2dShape shape = s;
    if (kernels::cuda::has_small_groups(s)) return run_conv2d(op, code, s, x, q, weight, out);
    if (!runs_on_codes(code, s)) {
      shape.groups = 1;
      return run_conv2d(op, code, shape, x, q, s.groups == 1 ? weight : joined(weight, s, false), out);
    }
    Quantiser of_codes = q;
    at::Tensor codes = signs_of_image(x, &of_codes);
    if (s.pad_code == -1 && (s.pad_h > 0 || s.pad_w > 0)) {
      codes = padded_with_minus_one(codes, {s.pad_h, s.pad_w});
      shape.in_h += 2 * s.pad_h;
      shape.in_w += 2 * s.pad_w;
      shape.pad_h = shape.pad_w = 0;
    }
    shape.groups = 1;
    shape.pad_code = 0;
    run_conv2d(op, kernels::Dtype::s8, shape, codes, of_codes, joined(weight, s, true), out);
  }

  at::Tensor prepack_gemm(const char* op, kernels::Dtype code, const at::Tensor& weight, std::int64_t n, std::int64_t k,
                          std::int64_t) const override {
    const c10::DeviceGuard guard(weight.device());
    return gemm_panels(op, gemm_table(code), n, k, {weight.contiguous(), code, {}, 1, {}}).data;
  }

  at::Tensor prepack_conv2d(const char* op, kernels::Dtype code, const at::Tensor& weight,
                            const kernels::Conv2dShape& s) const override {
    const c10::DeviceGuard guard(weight.device());
    Weight w{weight.contiguous(), code, {}, 1, {}};
    const bool on_codes = runs_on_codes(code, s);
    if (kernels::cuda::has_small_groups(s) || (!on_codes && s.groups == 1))
      return conv2d_panels(op, conv2d_table(code, s), s, w).data;
    w = joined(w, s, on_codes);
    kernels::Conv2dShape shape = s;
    shape.groups = 1;
    if (on_codes) shape.pad_code = 0;
    return conv2d_panels(op, conv2d_table(on_codes ? kernels::Dtype::s8 : code, shape), shape, w).data;
  }

  at::Tensor panels_of(const at::Tensor&, const at::Tensor& panels) const override { return panels; }

  Weight signs(const char* op, const at::Tensor& weight) const override {
    return {weight.contiguous(), kernel_dtype(op, "the weight", weight), {}, 1, {}};
  }
  Weight finite_signs(const char* op, const char* name, const at::Tensor& weight) const override {
    return {weight.contiguous(), kernel_dtype(op, name, weight), {}, 1, {}};
  }
  Weight quantised(const char* op, kernels::Dtype, const at::Tensor& weight, const Scale& scale, float floor,
                   const CodeRange&) const override {
    return {weight.contiguous(), kernel_dtype(op, "the weight", weight), scale, floor, {}};
  }
  Weight plain_codes(kernels::Dtype, const at::Tensor& weight) const override {
    return {weight.contiguous(), kernels::Dtype::s8, {}, 1, {}};
  }

  std::unique_ptr<OutputGrad> output_grad(const char* op, const at::Tensor& g) const override {
    return cuda::output_grad(op, g);
  }

 private:
  static void run_conv2d(const char* op, kernels::Dtype code, const kernels::Conv2dShape& shape, const at::Tensor& x,
                         const Quantiser& q, const Weight& weight, const at::Tensor& out) {
    const kernels::cuda::Conv2dTable table = conv2d_table(code, shape);
    const at::Device device = out.device();
    const c10::DeviceGuard guard(device);
    const CudaPanels panels = conv2d_panels(op, table, shape, weight);
    const at::Tensor workspace = at::empty({table.workspace(shape)}, out.options().dtype(at::kByte));
    const kernels::cuda::Image image = {x.const_data_ptr(), kernel_dtype(op, "x", x), layout_of(x),
                                        q.bias_data(),      q.scale_a.scalar(),       q.floor};
    const kernels::cuda::Conv2dOutput y = {out.mutable_data_ptr(), out_dtype(out), layout_of(out), q.scale_a.scalar(),
                                           q.scale_w.scalar()};
    const auto& chosen = kernels::cuda::choose(table, shape, image, y, gpu_of(op, device.index()));
    run_kernel(op, table, chosen, [&](const auto& kernel) {
      return kernel.run(shape, image, panels.view(), y, workspace.mutable_data_ptr(), cuda_queue(device));
    });
  }
};

}  // namespace

kernels::cuda::GemmTable gemm_table(kernels::Dtype code) { return kernels::cuda::products_of(code).gemm; }

const kernels::cuda::Gpu& gpu_of(const char* op, int device) {
  const kernels::cuda::Gpu* facts = nullptr;
  check_status(op, kernels::cuda::gpu(device, &facts));
  return *facts;
}

const Products& products() {
  static const CudaProducts it;
  return it;
}

}  // namespace bie::ops::cuda
