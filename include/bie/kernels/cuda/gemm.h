// The integer GEMMs on CUDA: the arithmetic of bie/kernels/gemm.h, to the bit, with scales that stay on the device.
//
//     step = max(scale_a, eps), q = code((x + bias) / step), y = float(acc) * (scale_a * scale_w)
//
// Calls are queued and return at once. They allocate nothing, use no atomics whose order shows, and can be captured in
// a CUDA graph. Where x + bias or a float weight holds NaN or infinity, or a scale is not finite, every element of a
// float output is NaN: no kernel can refuse what it has not waited for.
#pragma once

#include "bie/kernels/cuda/device.h"
#include "bie/kernels/gemm.h"

namespace bie::kernels::cuda {

/// Rows of numbers that become codes.
struct Rows {
  const void* data;
  Dtype
      dtype;  ///< f32, bf16, f16; or codes: s8, the GEMM's own packed type (bits, s4): bias, scale and eps are ignored
  std::int64_t row_stride;  ///< bytes
  const float* bias;        ///< [k] or null
  Scalar scale;             ///< of the quantiser; ignored by the binary GEMM
  float eps;                ///< least step size
};

/// An arranged weight. A flag is not 0 if prepack met NaN or infinity in a float weight; null: not checked.
struct Panels {
  const void* data;
  const int* flags = nullptr;
  int flag_count = 0;
};
constexpr int most_flags = 1024;

/// Codes of the next layer, bits or s8, are code((y + bias) / max(next_scale, next_eps)); of NaN the least one.
struct GemmOutput {
  void* data;
  Dtype dtype;                       ///< f32, bf16, f16; s32 for the bare accumulator; bits or s8 for codes, pad bits 0
  std::int64_t row_stride;           ///< bytes
  Scalar scale_a, scale_w;           ///< ignored for s32
  const float* bias = nullptr;       ///< codes only: [n] or null, the next layer's
  Scalar next_scale = {nullptr, 1};  ///< s8 only: the next layer's scale_a
  float next_eps = 0;                ///< and its least step size
};

struct GemmKernel {
  const char* name;    ///< <activation>x<weight>_gemm_<instruction>_<tile>
  int min_sm, max_sm;  ///< of the GPUs it runs on, max_sm included
  /// Whether the kernel can compute this shape; null: every shape.
  bool (*accepts)(const GemmShape&);
  /// Whether the kernel is a good choice for this shape on this GPU; null: always. The first kernel that is accepted
  /// and suits is the default.
  bool (*suits)(const GemmShape&, const Gpu&);
  Status (*run)(const GemmShape&, const Rows& x, const Panels&, const GemmOutput&, void* workspace, const Queue&);
};

/// All kernels of a table read the same panels, so any can stand in for another. The last runs everywhere.
struct GemmTable {
  const GemmKernel* best_first;
  int count;
  std::int64_t max_k;
  /// Bytes of panels for each of the n rows, a multiple of 4.
  std::int64_t (*panel_row)(std::int64_t k);
  /// Bytes that `run` of any kernel may write for activations, from a 16-byte boundary on.
  std::int64_t (*workspace)(std::int64_t m, std::int64_t k);
  /// Weight rows, float or codes in the checkpoint layout, to panels [n, panel_row(k)]. `flags`: null, or most_flags
  /// integers, of which the first `flag_count` are written.
  Status (*prepack)(const Rows& weight, std::int64_t n, std::int64_t k, void* panels, int* flags, int* flag_count,
                    const Queue&);
  const GemmKernel* begin() const { return best_first; }
  const GemmKernel* end() const { return best_first + count; }
  const GemmKernel& back() const { return best_first[count - 1]; }
};

GemmTable b1xb1_gemm_table();
GemmTable s8xs8_gemm_table();
GemmTable s4xs4_gemm_table();

template <class Kernel, class Shape>
bool fits(const Kernel& kernel, const Shape& shape, const Gpu& gpu) {
  return kernel.min_sm <= gpu.sm && gpu.sm <= kernel.max_sm && (kernel.accepts == nullptr || kernel.accepts(shape));
}

/// The first kernel that fits and suits. A pure function.
inline const GemmKernel& choose(const GemmTable& table, const GemmShape& shape, const Gpu& gpu) {
  for (const GemmKernel& kernel : table)
    if (fits(kernel, shape, gpu) && (kernel.suits == nullptr || kernel.suits(shape, gpu))) return kernel;
  return table.back();
}

}  // namespace bie::kernels::cuda
