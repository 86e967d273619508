#include "ops/bridge.h"

#include <ATen/ops/empty.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cmath>
#include <cstring>

#include "bie/kernels/cuda/registry.h"
#include "bie/kernels/huge_pages.h"
#include "bie/kernels/registry.h"
#include "ops/backend/cpu/torch_parallel.h"
#include "ops/backend/cuda/products.h"
#include "ops/tuning/cpu_tuning.h"
#include "ops/tuning/dispatch_log.h"

namespace bie::ops {
namespace {

constexpr std::int64_t header_bytes = 64;

/// What stands in front of a prepacked weight, so that panels of another weight or row are refused.
struct PanelHeader {
  char magic[4];
  std::int32_t taps;
  std::int64_t n, k;
  std::int32_t groups, pad_code;
  char kernel[28];
  std::uint32_t version;  ///< of the weight: how often it was written to

  bool holds(const PanelHeader& weight) const {
    return n == weight.n && k == weight.k && taps == weight.taps && groups == weight.groups &&
           pad_code == weight.pad_code;
  }
};
static_assert(sizeof(PanelHeader) == header_bytes);

/// The header of a GEMM's weight, and of a convolution's; kernel and version are still to be named.
PanelHeader header_of(std::int64_t n, std::int64_t k) { return {{'b', 'i', 'e', '1'}, 1, n, k, 1, 0, {}, 0}; }
PanelHeader header_of(const kernels::Conv2dShape& s) {
  const auto cut = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  return {{'b', 'i', 'e', '1'}, cut(s.taps()), s.out_c, s.depth(), cut(s.groups), s.pad_code, {}, 0};
}

/// A tensor of inference mode counts no writes.
std::uint32_t version_of(const at::Tensor& weight) {
  return weight.is_inference() ? 0 : static_cast<std::uint32_t>(weight._version());
}

/// Asks for huge pages where panels fill some: few rows read them all, and 4 KiB pages miss the TLB.
at::Tensor empty_panels(const at::Tensor& weight, std::size_t bytes) {
  at::Tensor panels = at::empty({header_bytes + static_cast<std::int64_t>(bytes)}, weight.options().dtype(at::kByte));
  if (!panels.is_meta()) kernels::prefer_huge_pages(panels.mutable_data_ptr(), bytes);
  return panels;
}

/// Writes the header; the pointer behind it.
void* panels_begin(const at::Tensor& panels, const at::Tensor& weight, PanelHeader header, const char* kernel) {
  header.version = version_of(weight);
  std::strncpy(header.kernel, kernel, sizeof header.kernel - 1);
  std::memcpy(panels.mutable_data_ptr(), &header, sizeof header);
  return static_cast<char*>(panels.mutable_data_ptr()) + header_bytes;
}

/// The row that arranged these panels, once they are proved to fit this weight.
template <class Row>
const Row& row_of_panels(const char* op, const kernels::Table<Row>& table, const at::Tensor& panels,
                         const PanelHeader& weight, kernels::IsaSet isas) {
  TORCH_CHECK_TYPE(panels.scalar_type() == at::kByte && panels.dim() == 1 && panels.is_contiguous() &&
                       panels.numel() >= header_bytes,
                   op, ": panels is ", panels.sizes(), " of ", panels.scalar_type(),
                   ", a tensor made by a prepack operator is wanted");
  PanelHeader header;
  std::memcpy(&header, panels.const_data_ptr(), sizeof header);
  header.kernel[sizeof header.kernel - 1] = '\0';
  const Row* row = std::memcmp(header.magic, "bie1", 4) == 0 ? kernels::find(table, header.kernel) : nullptr;
  TORCH_CHECK_VALUE(row != nullptr && isas.has(row->isa), op, ": panels were not made by a prepack operator for this ",
                    "operator on this machine");
  TORCH_CHECK_VALUE(header.holds(weight), op, ": panels hold a weight of ", header.n, " outputs and depth ", header.k,
                    " (", header.groups, " groups, padding ", header.pad_code, "), the weight has ", weight.n, " and ",
                    weight.k, " (", weight.groups, " groups, padding ", weight.pad_code, ")");
  TORCH_CHECK_VALUE(reinterpret_cast<std::uintptr_t>(panels.const_data_ptr()) % 64 == 0, op,
                    ": panels are not aligned to 64 bytes");
  return *row;
}

void check_panel_size(const char* op, const at::Tensor& panels, std::size_t bytes) {
  TORCH_CHECK_VALUE(panels.numel() == header_bytes + static_cast<std::int64_t>(bytes), op, ": panels have ",
                    panels.numel(), " bytes, ", header_bytes + static_cast<std::int64_t>(bytes), " are wanted");
}

const void* panel_data(const at::Tensor& panels) {
  return static_cast<const char*>(panels.const_data_ptr()) + header_bytes;
}

}  // namespace

at::Tensor panels_of(const at::Tensor& weight, const OptTensor& panels) {
  const at::Tensor given = value_or_none(panels);
  const bool has_values = weight.numel() > 1 && weight.is_non_overlapping_and_dense();
  // What is no panels at all is refused where it is read.
  if (!given.defined() || !given.is_cpu() || given.scalar_type() != at::kByte || given.numel() < header_bytes ||
      !has_values)
    return given;
  PanelHeader header;
  std::memcpy(&header, given.const_data_ptr(), sizeof header);
  return header.version == version_of(weight) ? given : at::Tensor();
}

kernels::Dtype out_dtype(const at::Tensor& out) {
  switch (out.scalar_type()) {
    case at::kBFloat16: return kernels::Dtype::bf16;
    case at::kHalf: return kernels::Dtype::f16;
    case at::kInt: return kernels::Dtype::s32;
    default: return kernels::Dtype::f32;
  }
}

kernels::ImageLayout layout_of(const at::Tensor& x) {
  return x.suggest_memory_format() == at::MemoryFormat::ChannelsLast ? kernels::ImageLayout::nhwc
                                                                     : kernels::ImageLayout::nchw;
}

void warn_of_id(const char* op, const kernels::GemmShape& shape, std::int64_t kernel_id) {
  if (kernel_id < 0 || kernel_id >= first_kernel_id) {
    TORCH_WARN_ONCE(op, ": kernel_id ", kernel_id, " names no kernel for [", shape.m, ", ", shape.n, ", ", shape.k,
                    "] on this machine, the choice is automatic");
  }
}

bool is_float_type(at::ScalarType type) { return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf; }

kernels::Dtype kernel_dtype(const char* op, const char* name, const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return kernels::Dtype::f32;
    case at::kBFloat16: return kernels::Dtype::bf16;
    case at::kHalf: return kernels::Dtype::f16;
    case at::kChar: return kernels::Dtype::s8;
    default: break;
  }
  TORCH_CHECK_TYPE(false, op, ": ", name, " is ", tensor.scalar_type(),
                   ", float32, bfloat16, float16 or int8 is wanted");
}

void check_float(const char* op, const char* name, const at::Tensor& tensor) {
  TORCH_CHECK_TYPE(is_float_type(tensor.scalar_type()), op, ": ", name, " is ", tensor.scalar_type(),
                   ", float32, bfloat16 or float16 is wanted");
}

std::int64_t fixed_size(const at::Tensor& tensor, std::int64_t axis) {
  return tensor.sym_size(axis).guard_int(__FILE__, __LINE__);
}

void check_meta(const char* op, const char* name, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.is_meta(), op, ": ", name, " is on ", tensor.device(),
                    ", another tensor on meta; one device is wanted");
}

float scale_value(const char* op, const char* name, const at::Tensor& scale) {
  TORCH_CHECK_VALUE(scale.defined() && scale.numel() == 1, op, ": ", name, " is ",
                    scale.defined() ? c10::str(scale.sizes()) : std::string("missing"), ", one element is wanted");
  float value = 0;
  if (scale.scalar_type() == at::kFloat) {
    value = *scale.const_data_ptr<float>();
  } else {
    check_float(op, name, scale);
    value = scale.item<float>();
  }
  TORCH_CHECK_VALUE(std::isfinite(value), op, ": ", name, " is ", value, ", a finite number is wanted");
  return value;
}

Scale scale_of(const char* op, const char* name, const at::Tensor& scale, at::Device where) {
  TORCH_CHECK_VALUE(scale.defined() && scale.numel() == 1, op, ": ", name, " is ",
                    scale.defined() ? c10::str(scale.sizes()) : std::string("missing"), ", one element is wanted");
  TORCH_CHECK_VALUE(scale.device() == where || (where.is_cuda() && scale.is_cpu() && scale.dim() == 0), op, ": ", name,
                    " is on ", scale.device(), ", the other tensors on ", where);
  if (!scale.is_cuda()) return {scale_value(op, name, scale), {}};
  check_float(op, name, scale);
  return {0, scale.detach().to(at::kFloat)};
}

at::Tensor Scaled::multiplied() const {
  if (scale.device.defined()) return values.mul_(scale.device.reshape(at::IntArrayRef()));
  return scale.value == 1 ? values : values.mul_(scale.value);
}

kernels::cuda::Queue cuda_queue(at::Device device) {
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  return {guard.getStream(device).native_handle(), static_cast<int>(device.index())};
}

void check_one_device(const char* op, std::initializer_list<at::Tensor> tensors) {
  const at::Tensor* first = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    if (first == nullptr) first = &tensor;
    TORCH_CHECK_VALUE(tensor.device() == first->device(), op, ": tensors are on ", first->device(), " and ",
                      tensor.device(), ", one device is wanted");
  }
}

void check_status(const char* op, kernels::Status status) {
  if constexpr (with_cuda) {
    if (status == kernels::Status::launch_failed || status == kernels::Status::device_error)
      TORCH_CHECK(false, op, ": ", kernels::describe(status), ": ", kernels::cuda::last_error());
  }
  TORCH_CHECK_VALUE(status == kernels::Status::ok, op, ": ", kernels::describe(status));
}

kernels::IsaSet host_isas(const char* op) {
  check_status(op, kernels::host().status);
  return kernels::host().isas;
}

at::Tensor float_bias(const char* op, const at::Tensor& bias, std::int64_t k) {
  if (!bias.defined()) return bias;
  check_float(op, "bias_a", bias);
  TORCH_CHECK_VALUE(bias.dim() == 1 && bias.size(0) == k, op, ": bias_a is ", bias.sizes(), ", [", k, "] is wanted");
  return bias.to(at::kFloat).contiguous();
}

Rows rows_of(const at::Tensor& x) {
  if (x.dim() == 2 && x.stride(1) == 1 && x.stride(0) >= x.size(1))
    return {x, x.size(0), x.stride(0) * static_cast<std::int64_t>(x.element_size())};
  const at::Tensor dense = x.contiguous();
  const std::int64_t last = x.size(-1);
  return {dense, last == 0 ? 0 : dense.numel() / last, last * static_cast<std::int64_t>(x.element_size())};
}

GemmTables gemm_tables(kernels::Dtype code) {
  GemmTables tables{kernels::products_of(code).gemm, {}};
  if constexpr (with_cuda) tables.cuda = kernels::cuda::products_of(code).gemm;
  return tables;
}

Conv2dTables conv2d_tables(kernels::Dtype code) {
  Conv2dTables tables{kernels::products_of(code).conv2d, {}};
  if constexpr (with_cuda) tables.cuda = kernels::cuda::products_of(code).conv2d;
  return tables;
}

const kernels::GemmKernel& gemm_row(const char* op, const kernels::GemmTable& table, const kernels::GemmShape& shape,
                                    std::int64_t kernel_id) {
  const kernels::IsaSet isas = host_isas(op);
  const std::int64_t index = kernel_id - first_kernel_id;
  if (index >= 0 && index < table.count && kernels::fits(table.rows[index], shape, isas)) return table.rows[index];
  if (kernel_id < first_cuda_kernel_id || kernel_id > last_cuda_kernel_id) warn_of_id(op, shape, kernel_id);
  if (const kernels::GemmKernel* row = tuned_row(table, shape, isas)) return *row;
  return kernels::choose(table, shape, isas);
}

namespace {

const char* how_chosen(const kernels::GemmTable& table, const kernels::GemmKernel& row, const kernels::GemmShape& shape,
                       std::int64_t kernel_id) {
  if (kernel_id >= first_kernel_id) return "kernel_id";
  return &row == &kernels::choose(table, shape, kernels::host().isas) ? "the first that fits" : "tuned";
}

}  // namespace

void run_gemm(const char* op, const GemmTables& tables, const kernels::GemmShape& shape, const Rows& x,
              kernels::Dtype dtype, const Quantiser& q, const Weight& weight, const at::Tensor& out,
              std::int64_t kernel_id) {
  if constexpr (with_cuda) {
    if (out.is_cuda()) return run_gemm_cuda(op, tables.cuda, shape, x, dtype, q, weight, out, kernel_id);
  }
  const kernels::GemmInput input = {x.data.const_data_ptr(), dtype, x.stride, q.bias_data(), q.step()};
  const kernels::Dtype to = out_dtype(out);
  const kernels::GemmOutput y = {out.mutable_data_ptr(), to, kernels::row_bytes(to, shape.n), q.result_scale()};
  if (weight.panels.defined()) {
    const kernels::GemmKernel& row =
        row_of_panels(op, tables.cpu, weight.panels, header_of(shape.n, shape.k), host_isas(op));
    check_panel_size(op, weight.panels, row.packed_bytes(shape.n, shape.k));
    log_dispatch(op, tables.cpu, row, shape, "its panels were given");
    check_status(op, row.run(shape, input, panel_data(weight.panels), y, torch_parallel()));
    return;
  }
  const kernels::GemmKernel& row = gemm_row(op, tables.cpu, shape, kernel_id);
  log_dispatch(op, tables.cpu, row, shape, how_chosen(tables.cpu, row, shape, kernel_id));
  const at::Tensor panels = at::empty({static_cast<std::int64_t>(row.packed_bytes(shape.n, shape.k))}, at::kByte);
  row.prepack(weight.values.const_data_ptr(), shape.n, shape.k, panels.mutable_data_ptr(), torch_parallel());
  check_status(op, row.run(shape, input, panels.const_data_ptr(), y, torch_parallel()));
}

void run_conv2d(const char* op, const Conv2dTables& tables, const kernels::Conv2dShape& shape, const at::Tensor& x,
                const Quantiser& q, const Weight& weight, const at::Tensor& out) {
  if constexpr (with_cuda) {
    if (out.is_cuda()) return run_conv2d_cuda(op, tables.cuda, shape, x, q, weight, out);
  }
  const kernels::IsaSet isas = host_isas(op);
  const kernels::Conv2dInput input = {x.const_data_ptr(), kernel_dtype(op, "x", x), layout_of(x), q.bias_data(),
                                      q.step()};
  const kernels::Conv2dOutput y = {out.mutable_data_ptr(), out_dtype(out), input.layout, q.result_scale()};
  if (weight.panels.defined()) {
    const kernels::Conv2dKernel& row = row_of_panels(op, tables.cpu, weight.panels, header_of(shape), isas);
    check_panel_size(op, weight.panels, row.packed_bytes(shape));
    log_dispatch(op, tables.cpu, row, shape, "its panels were given");
    check_status(op, row.run(shape, input, panel_data(weight.panels), y, torch_parallel()));
    return;
  }
  const kernels::Conv2dKernel& row = kernels::choose(tables.cpu, shape, isas);
  log_dispatch(op, tables.cpu, row, shape, "the first that fits");
  const at::Tensor panels = at::empty({static_cast<std::int64_t>(row.packed_bytes(shape))}, at::kByte);
  row.prepack(weight.values.const_data_ptr(), shape, panels.mutable_data_ptr(), torch_parallel());
  check_status(op, row.run(shape, input, panels.const_data_ptr(), y, torch_parallel()));
}

at::Tensor prepack_gemm(const char* op, const GemmTables& tables, const at::Tensor& weight, kernels::Dtype dtype,
                        std::int64_t n, std::int64_t k, std::int64_t kernel_id) {
  if constexpr (with_cuda) {
    if (weight.is_cuda()) return prepack_gemm_cuda(op, tables.cuda, weight, dtype, n, k);
  }
  const kernels::GemmKernel& row = gemm_row(op, tables.cpu, {1, n, k}, kernel_id);
  const at::Tensor panels = empty_panels(weight, row.packed_bytes(n, k));
  if (!weight.is_meta())
    row.prepack(weight.contiguous().const_data_ptr(), n, k, panels_begin(panels, weight, header_of(n, k), row.name),
                torch_parallel());
  return panels;
}

at::Tensor prepack_conv2d(const char* op, const Conv2dTables& tables, const at::Tensor& weight, kernels::Dtype dtype,
                          const kernels::Conv2dShape& shape) {
  if constexpr (with_cuda) {
    if (weight.is_cuda()) return prepack_conv2d_cuda(op, tables.cuda, weight, dtype, shape);
  }
  const kernels::Conv2dKernel& row = kernels::choose(tables.cpu, shape, host_isas(op));
  const at::Tensor panels = empty_panels(weight, row.packed_bytes(shape));
  if (!weight.is_meta())
    row.prepack(weight.contiguous().const_data_ptr(), shape, panels_begin(panels, weight, header_of(shape), row.name),
                torch_parallel());
  return panels;
}

}  // namespace bie::ops
