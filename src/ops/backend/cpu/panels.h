// A prepacked weight: panels of one kernel of a table behind a header, so that panels of another weight or kernel are
// refused.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "bie/kernels/conv2d.h"
#include "bie/kernels/gemm.h"

namespace bie::ops::cpu {

inline constexpr std::int64_t header_bytes = 64;

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
PanelHeader header_of(std::int64_t n, std::int64_t k);
PanelHeader header_of(const kernels::Conv2dShape& s);

/// Requests huge pages where panels fill some: few rows read them all, and 4 KiB pages miss the TLB.
at::Tensor empty_panels(const at::Tensor& weight, std::size_t bytes);
/// Writes the header; the pointer behind it.
void* panels_begin(const at::Tensor& panels, const at::Tensor& weight, PanelHeader header, const char* kernel);

/// Reads the header; refuses bytes that have none.
PanelHeader header_in(const char* op, const at::Tensor& panels);
/// Refuses unless panels of a kernel that this machine runs (or not) hold this weight.
void check_panels(const char* op, const at::Tensor& panels, const PanelHeader& header, const PanelHeader& weight,
                  bool row_runs);
/// Whether panels begin where kernels can read them.
bool is_aligned(const at::Tensor& panels);
void check_panel_size(const char* op, const at::Tensor& panels, std::size_t bytes);
const void* panel_data(const at::Tensor& panels);

/// See Products.
at::Tensor panels_of(const at::Tensor& weight, const at::Tensor& panels);

}  // namespace bie::ops::cpu
