#include "ops/backend/products.h"

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <algorithm>

#include "bie/kernels/registry.h"
#include "ops/backend/backend.h"
#include "ops/backend/cpu/backend.h"
#include "ops/backend/cpu/panels.h"
#include "ops/backend/cpu/products.h"
#include "ops/backend/cpu/torch_parallel.h"
#include "ops/backend/cpu/tuning.h"
#include "ops/backend/kernel_ids.h"
#include "ops/backend/packing.h"
#include "ops/matmul/gemm_batch.h"
#include "ops/tuning/dispatch_log.h"

namespace bie::ops::cpu {
namespace {

kernels::Conv2dTable conv2d_table(kernels::Dtype code) { return kernels::products_of(code).conv2d; }

/// The kernel that arranged these panels, once they are proved to fit this weight.
template <class Kernel>
const Kernel& kernel_of_panels(const char* op, const kernels::Table<Kernel>& table, const at::Tensor& panels,
                               const PanelHeader& weight) {
  const PanelHeader header = header_in(op, panels);
  const Kernel* kernel = kernels::find(table, header.kernel);
  check_panels(op, panels, header, weight, kernel != nullptr && host_isas(op).has(kernel->isa));
  return *kernel;
}

/// The kernel an id names, or the one that tuning found fastest, or the table's choice. An id of a kernel that is not
/// there, not for this machine or not for this shape names none, with one warning.
const kernels::GemmKernel& gemm_kernel(const char* op, const kernels::GemmTable& table, const kernels::GemmShape& shape,
                                       std::int64_t kernel_id) {
  const kernels::IsaSet isas = host_isas(op);
  const std::int64_t index = kernel_id - first_kernel_id;
  if (index >= 0 && index < table.count && kernels::fits(table.best_first[index], shape, isas))
    return table.best_first[index];
  if (kernel_id < first_cuda_kernel_id || kernel_id > last_cuda_kernel_id) warn_of_id(op, shape, kernel_id);
  if (const kernels::GemmKernel* kernel = tuned_kernel(table, shape, isas)) return *kernel;
  return kernels::choose(table, shape, isas);
}

const char* how_chosen(const kernels::GemmTable& table, const kernels::GemmKernel& kernel,
                       const kernels::GemmShape& shape, std::int64_t kernel_id) {
  if (kernel_id >= first_kernel_id) return "kernel_id";
  return &kernel == &kernels::choose(table, shape, kernels::host().isas) ? "the first that fits" : "tuned";
}

/// body(i) for i in [0, count): many small ones side by side, few large ones one after another on all threads.
template <class F>
void for_items(std::int64_t count, std::int64_t work, const F& body) {
  constexpr std::int64_t task_work = 1 << 18, items_a_thread = 4;
  const kernels::Parallel threads = torch_parallel();
  if (count < items_a_thread * threads.threads) {
    for (std::int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  kernels::parallel_for(threads, count, 1 + task_work / std::max<std::int64_t>(1, work),
                        [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t i = begin; i < end; ++i) body(i);
                        });
}

/// Codes [n, k] as the checkpoint layout has them.
at::Tensor packed(kernels::Dtype code, const at::Tensor& codes) {
  return code == kernels::Dtype::s4 ? pack_int4(codes) : codes;
}

class CpuProducts final : public Products {
  void gemm(const char* op, kernels::Dtype code, const kernels::GemmShape& shape, const Rows& x, kernels::Dtype dtype,
            const Quantiser& q, const Weight& weight, const at::Tensor& out, std::int64_t kernel_id) const override {
    const kernels::GemmTable table = gemm_table(code);
    const kernels::GemmInput input = {x.data.const_data_ptr(), dtype, x.stride, q.bias_data(), q.step()};
    const kernels::Dtype to = out_dtype(out);
    const kernels::GemmOutput y = {out.mutable_data_ptr(), to, kernels::row_bytes(to, shape.n), q.result_scale()};
    if (weight.panels.defined()) {
      const kernels::GemmKernel& kernel = kernel_of_panels(op, table, weight.panels, header_of(shape.n, shape.k));
      check_panel_size(op, weight.panels, kernel.packed_bytes(shape.n, shape.k));
      log_dispatch(op, table, kernel, shape, "its panels were given");
      check_status(op, kernel.run(shape, input, panel_data(weight.panels), y, torch_parallel()));
      return;
    }
    const kernels::GemmKernel& kernel = gemm_kernel(op, table, shape, kernel_id);
    log_dispatch(op, table, kernel, shape, how_chosen(table, kernel, shape, kernel_id));
    const at::Tensor panels = at::empty({static_cast<std::int64_t>(kernel.packed_bytes(shape.n, shape.k))}, at::kByte);
    kernel.prepack(weight.values.const_data_ptr(), shape.n, shape.k, panels.mutable_data_ptr(), torch_parallel());
    check_status(op, kernel.run(shape, input, panels.const_data_ptr(), y, torch_parallel()));
  }

  void conv2d(const char* op, kernels::Dtype code, const kernels::Conv2dShape& shape, const at::Tensor& x,
              const Quantiser& q, const Weight& weight, const at::Tensor& out) const override {
    const kernels::Conv2dTable table = conv2d_table(code);
    const kernels::Conv2dInput input = {x.const_data_ptr(), kernel_dtype(op, "x", x), layout_of(x), q.bias_data(),
                                        q.step()};
    const kernels::Conv2dOutput y = {out.mutable_data_ptr(), out_dtype(out), input.layout, q.result_scale()};
    if (weight.panels.defined()) {
      const kernels::Conv2dKernel& kernel = kernel_of_panels(op, table, weight.panels, header_of(shape));
      check_panel_size(op, weight.panels, kernel.packed_bytes(shape));
      log_dispatch(op, table, kernel, shape, "its panels were given");
      check_status(op, kernel.run(shape, input, panel_data(weight.panels), y, torch_parallel()));
      return;
    }
    const kernels::Conv2dKernel& kernel = chosen(op, table, shape);
    log_dispatch(op, table, kernel, shape, "the first that fits");
    const at::Tensor panels = at::empty({static_cast<std::int64_t>(kernel.packed_bytes(shape))}, at::kByte);
    kernel.prepack(weight.values.const_data_ptr(), shape, panels.mutable_data_ptr(), torch_parallel());
    check_status(op, kernel.run(shape, input, panels.const_data_ptr(), y, torch_parallel()));
  }

  at::Tensor prepack_gemm(const char* op, kernels::Dtype code, const at::Tensor& weight, std::int64_t n, std::int64_t k,
                          std::int64_t kernel_id) const override {
    const kernels::GemmKernel& kernel = gemm_kernel(op, gemm_table(code), {1, n, k}, kernel_id);
    const at::Tensor panels = empty_panels(weight, kernel.packed_bytes(n, k));
    if (!weight.is_meta())
      kernel.prepack(weight.contiguous().const_data_ptr(), n, k,
                     panels_begin(panels, weight, header_of(n, k), kernel.name), torch_parallel());
    return panels;
  }

  at::Tensor prepack_conv2d(const char* op, kernels::Dtype code, const at::Tensor& weight,
                            const kernels::Conv2dShape& shape) const override {
    const kernels::Conv2dKernel& kernel = chosen(op, conv2d_table(code), shape);
    const at::Tensor panels = empty_panels(weight, kernel.packed_bytes(shape));
    if (!weight.is_meta())
      kernel.prepack(weight.contiguous().const_data_ptr(), shape,
                     panels_begin(panels, weight, header_of(shape), kernel.name), torch_parallel());
    return panels;
  }

  at::Tensor panels_of(const at::Tensor& weight, const at::Tensor& panels) const override {
    return cpu::panels_of(weight, panels);
  }

  Weight signs(const char*, const at::Tensor& weight) const override {
    return {pack_signs(weight), kernels::Dtype::bits, {}, 1, {}};
  }
  Weight finite_signs(const char* op, const char* name, const at::Tensor& weight) const override {
    quantizers().mean_scale(op, name, weight, 1, 0);  // refuses NaN and infinity, which have a sign bit
    return signs(op, weight);
  }
  Weight quantised(const char* op, kernels::Dtype code, const at::Tensor& weight, const Scale& scale, float floor,
                   const CodeRange& range) const override {
    return {packed(code, quantizers().quantize_codes(op, weight, scale, floor, range)), code, {}, 1, {}};
  }
  Weight plain_codes(kernels::Dtype code, const at::Tensor& weight) const override {
    return {packed(code, weight).contiguous(), code, {}, 1, {}};
  }

  void gemm_batch(const char* op, kernels::Dtype code, const GemmBatch& batch, const at::Tensor& x, const Quantiser& q,
                  const Weight& y, const at::Tensor& out) const override {
    const BatchRows rows(batch, x);
    const std::vector<std::int64_t> y_of = batch.y_numbers();
    const kernels::GemmShape& s = batch.shape;
    const kernels::GemmKernel& kernel = gemm_kernel(op, gemm_table(code), s, /*kernel_id=*/0);
    const std::int64_t matrices = c10::multiply_integers(batch.y_sizes);
    const std::int64_t panel_bytes = (static_cast<std::int64_t>(kernel.packed_bytes(s.n, s.k)) + 63) / 64 * 64;
    const std::int64_t y_bytes = s.n * kernels::row_bytes(y.dtype, s.k);
    const at::Tensor panels = at::empty({matrices * panel_bytes}, at::kByte);
    char* const arranged = static_cast<char*>(panels.mutable_data_ptr());
    const char* const codes = static_cast<const char*>(y.values.const_data_ptr());
    for_items(matrices, s.n * s.k, [&](std::int64_t i) {
      kernel.prepack(codes + i * y_bytes, s.n, s.k, arranged + i * panel_bytes, torch_parallel());
    });

    const kernels::Dtype from = kernel_dtype(op, "x", rows.data), to = out_dtype(out);
    const std::int64_t out_row = kernels::row_bytes(to, s.n);
    const char* const data = static_cast<const char*>(rows.data.const_data_ptr());
    char* const result = static_cast<char*>(out.mutable_data_ptr());
    for_items(batch.count(), s.m * s.n * s.k, [&](std::int64_t i) {
      const auto at = static_cast<std::size_t>(i);
      const kernels::GemmInput input = {data + kernels::row_bytes(from, rows.offsets[at]), from,
                                        kernels::row_bytes(from, rows.stride), q.bias_data(), q.step()};
      check_status(op, kernel.run(s, input, arranged + y_of[at] * panel_bytes,
                                  {result + i * s.m * out_row, to, out_row, q.result_scale()}, torch_parallel()));
    });
  }

  std::unique_ptr<OutputGrad> output_grad(const char* op, const at::Tensor& g) const override {
    return cpu::output_grad(op, g);
  }
};

}  // namespace

kernels::GemmTable gemm_table(kernels::Dtype code) { return kernels::products_of(code).gemm; }

const Products& products() {
  static const CpuProducts it;
  return it;
}

}  // namespace bie::ops::cpu
