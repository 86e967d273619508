#include "ops/backend/cpu/panels.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <cstring>

#include "bie/kernels/huge_pages.h"
#include "bie/kernels/registry.h"

namespace bie::ops::cpu {
namespace {

/// A tensor of inference mode counts no writes.
std::uint32_t version_of(const at::Tensor& weight) {
  return weight.is_inference() ? 0 : static_cast<std::uint32_t>(weight._version());
}

/// Whether this machine runs the kernel of that name; true for a name that no table has.
bool runs_here(const char* name) {
  const kernels::IsaSet isas = kernels::host().isas;
  for (const kernels::Products& products : kernels::all_products()) {
    if (const auto* gemm = kernels::find(products.gemm, name)) return isas.has(gemm->isa);
    if (const auto* conv = kernels::find(products.conv2d, name)) return isas.has(conv->isa);
  }
  return true;
}

}  // namespace

bool is_aligned(const at::Tensor& panels) {
  return reinterpret_cast<std::uintptr_t>(panels.const_data_ptr()) % 64 == 0;
}

PanelHeader header_of(std::int64_t n, std::int64_t k) { return {{'b', 'i', 'e', '1'}, 1, n, k, 1, 0, {}, 0}; }
PanelHeader header_of(const kernels::Conv2dShape& s) {
  const auto cut = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  return {{'b', 'i', 'e', '1'}, cut(s.taps()), s.out_c, s.depth(), cut(s.groups), s.pad_code, {}, 0};
}

at::Tensor empty_panels(const at::Tensor& weight, std::size_t bytes) {
  at::Tensor panels = at::empty({header_bytes + static_cast<std::int64_t>(bytes)}, weight.options().dtype(at::kByte));
  if (!panels.is_meta()) kernels::prefer_huge_pages(panels.mutable_data_ptr(), bytes);
  return panels;
}

void* panels_begin(const at::Tensor& panels, const at::Tensor& weight, PanelHeader header, const char* kernel) {
  header.version = version_of(weight);
  std::strncpy(header.kernel, kernel, sizeof header.kernel - 1);
  std::memcpy(panels.mutable_data_ptr(), &header, sizeof header);
  return static_cast<char*>(panels.mutable_data_ptr()) + header_bytes;
}

PanelHeader header_in(const char* op, const at::Tensor& panels) {
  TORCH_CHECK_TYPE(panels.scalar_type() == at::kByte && panels.dim() == 1 && panels.is_contiguous() &&
                       panels.numel() >= header_bytes,
                   op, ": panels: expected a tensor made by a prepack operator, got ", panels.sizes(), " of ",
                   panels.scalar_type());
  PanelHeader header;
  std::memcpy(&header, panels.const_data_ptr(), sizeof header);
  header.kernel[sizeof header.kernel - 1] = '\0';
  return header;
}

void check_panels(const char* op, const at::Tensor& panels, const PanelHeader& header, const PanelHeader& weight,
                  bool row_runs) {
  TORCH_CHECK_VALUE(row_runs && std::memcmp(header.magic, "bie1", 4) == 0, op,
                    ": panels were not made by a prepack operator for this operator on this machine");
  TORCH_CHECK_VALUE(header.holds(weight), op, ": panels hold a weight of ", header.n, " outputs and depth ", header.k,
                    " (", header.groups, " groups, padding ", header.pad_code, "), the weight has ", weight.n, " and ",
                    weight.k, " (", weight.groups, " groups, padding ", weight.pad_code, ")");
  TORCH_CHECK_VALUE(is_aligned(panels), op, ": panels are not aligned to 64 bytes");
}

void check_panel_size(const char* op, const at::Tensor& panels, std::size_t bytes) {
  TORCH_CHECK_VALUE(panels.numel() == header_bytes + static_cast<std::int64_t>(bytes), op, ": panels: expected ",
                    header_bytes + static_cast<std::int64_t>(bytes), " bytes, got ", panels.numel());
}

const void* panel_data(const at::Tensor& panels) {
  return static_cast<const char*>(panels.const_data_ptr()) + header_bytes;
}

at::Tensor panels_of(const at::Tensor& weight, const at::Tensor& given) {
  const bool has_values = weight.numel() > 1 && weight.is_non_overlapping_and_dense();
  // A tensor that cannot be panels is passed on and refused where it is read.
  if (!given.defined() || !given.is_cpu() || given.scalar_type() != at::kByte || given.numel() < header_bytes ||
      !has_values)
    return given;
  PanelHeader header;
  std::memcpy(&header, given.const_data_ptr(), sizeof header);
  header.kernel[sizeof header.kernel - 1] = '\0';
  // A weight that counts fewer writes is a copy, as a program that was saved with its panels holds it.
  if (header.version < version_of(weight) || !runs_here(header.kernel)) return {};
  return is_aligned(given) ? given : given.clone();  // a file's bytes, as torch.export.load hands them over
}

}  // namespace bie::ops::cpu
