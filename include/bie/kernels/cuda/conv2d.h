// The integer convolutions on CUDA: the arithmetic of bie/kernels/conv2d.h under the rules of cuda/gemm.h. NaN and
// infinity in a pixel that no window reads may go unnoticed.
#pragma once

#include "bie/kernels/conv2d.h"
#include "bie/kernels/cuda/gemm.h"

namespace bie::kernels::cuda {

struct Image {
  const void* data;    ///< dense, in `layout`
  Dtype dtype;         ///< f32, bf16, f16, or s8: codes
  ImageLayout layout;  ///< nhwc is read as it lies; nchw is turned while it is quantised
  const float* bias;   ///< [in_c] or null
  Scalar scale;
  float eps;
};

struct Conv2dOutput {
  void* data;
  Dtype dtype;  ///< f32, bf16, f16 or s32
  ImageLayout layout;
  Scalar scale_a, scale_w;
};

struct Conv2dKernel {
  const char* name;
  int min_sm, max_sm;
  bool (*accepts)(const Conv2dShape&);
  bool (*suits)(const Conv2dShape&, const Image&, const Gpu&);
  Status (*run)(const Conv2dShape&, const Image& x, const Panels&, const Conv2dOutput&, void* workspace, const Queue&);
  /// Whether the kernel reads this image and writes these results (run returns Status::bad_dtype if not); null: all.
  bool (*takes)(const Image&, const Conv2dOutput&) = nullptr;
};

/// The weight of a convolution: float [out_c, in_c, kernel_h, kernel_w] of dtype f32, bf16, f16, codes s8 of that
/// shape, or packed rows of int4 or, of a binary convolution, of bits.
struct Filter {
  const void* data;
  Dtype dtype;
  Scalar scale;
  float eps;
};

struct Conv2dTable {
  const Conv2dKernel* best_first;
  int count;
  std::int64_t max_k;
  std::int64_t (*panel_row)(const Conv2dShape&);  ///< bytes of one of the out_c rows
  std::int64_t (*workspace)(const Conv2dShape&);
  Status (*prepack)(const Filter&, const Conv2dShape&, void* panels, int* flags, int* flag_count, const Queue&);
  const Conv2dKernel* begin() const { return best_first; }
  const Conv2dKernel* end() const { return best_first + count; }
  const Conv2dKernel& back() const { return best_first[count - 1]; }
};

/// For one group, and for signs padded with -1 only: Status::bad_shape for others.
Conv2dTable b1xb1_conv2d_table();
Conv2dTable s8xs8_conv2d_table();
Conv2dTable s4xs4_conv2d_table();

/// For any number of groups and either padding. Computed without tensor cores, from panels of their own.
Conv2dTable b1xb1_grouped_conv2d_table();
Conv2dTable s8xs8_grouped_conv2d_table();
Conv2dTable s4xs4_grouped_conv2d_table();

/// Whether to use the grouped tables: groups have so few channels that the tables of one group, with zeros between the
/// groups' filters, would multiply mostly zeros. Depends on in_c, out_c and groups alone.
inline bool has_small_groups(const Conv2dShape& s) {
  constexpr std::int64_t few = 32;
  return s.groups > 1 && s.group_in() <= few && s.group_out() <= 4 * few;
}

/// The first kernel that fits, takes the image and the results, and suits. A pure function.
inline const Conv2dKernel& choose(const Conv2dTable& table, const Conv2dShape& shape, const Image& x,
                                  const Conv2dOutput& y, const Gpu& gpu) {
  for (const Conv2dKernel& kernel : table)
    if (fits(kernel, shape, gpu) && (kernel.takes == nullptr || kernel.takes(x, y)) &&
        (kernel.suits == nullptr || kernel.suits(shape, x, gpu)))
      return kernel;
  return table.back();
}

}  // namespace bie::kernels::cuda
