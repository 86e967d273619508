// Products of floats and integer codes on CUDA, added in float32: what backward passes multiply. Codes become floats in
// registers; they exist nowhere as such. On sm_90 alone.
#pragma once

#include <cstdint>
#include <optional>

#include "bie/kernels/conv2d.h"
#include "bie/kernels/cuda/device.h"
#include "bie/kernels/cuda/input_grad.h"
#include "bie/kernels/dtype.h"

namespace bie::kernels::cuda {

/// An array of floats as the sum of one or three arrays of 16-bit ones: float16 or bfloat16 as they are, float32 as
/// three bfloat16 (split_floats), 24 bits. Each begins on a boundary of 16 bytes.
struct FloatParts {
  const void* data[3];
  int count;    ///< 1, or of bf16 3
  Dtype dtype;  ///< f16 or bf16
};

/// The three parts of float32 x [count], whose sum is x but for parts below bfloat16's range: parts[i] = what the ones
/// before leave, rounded.
Status split_floats(const float* x, std::int64_t count, void* const (&parts)[3], const Queue&);

/// out [rows, columns] = (floats . codes) * gain, all dense. A product is one of a matrix, or of the windows of a
/// convolution without groups, whose image and gradient are channels_last and whose weight is [out_c, kernel_h,
/// kernel_w, in_c].
struct MixedProduct {
  enum class Kind : std::uint8_t {
    times,             ///< floats [rows, depth], codes [depth, columns]
    transposed_times,  ///< floats [depth, rows], codes [depth, columns]
    input_grad,        ///< floats: an output's gradient; codes: the weight; out: the image's gradient. Stride 1
    weight_grad,  ///< floats: an output's gradient; codes: the image, outside of which they are 0; out: the weight's
  };
  Kind kind;
  std::int64_t rows, columns, depth;  ///< of matrices
  Conv2dShape shape;                  ///< of convolutions
  FloatParts floats;
  const std::int8_t* codes;  ///< on a boundary of 16 bytes
  bool signs;                ///< codes stand for their signs; not for transposed_times and weight_grad
  Scalar gain;
  float* out;    ///< on a boundary of 16 bytes
  void* totals;  ///< null, or the workspace of int8_grad, to leave totals of `out` in
};

struct MixedNeeds {
  std::int64_t workspace_bytes;  ///< from a 16-byte boundary on
  int totals;                    ///< how many are left where they are asked for; 0: none, int8_grad has to read `out`
};
/// Empty if the GPU has no kernel for the product: it is not sm_90, rows of memory are no multiples of 16 bytes, or a
/// size is not below 2^30.
std::optional<MixedNeeds> mixed_needs(const Gpu&, const MixedProduct&);
/// Status::bad_shape where there is no kernel.
Status mixed_product(const MixedProduct&, void* workspace, const Queue&);

/// input_grads of a product's result, which is written nowhere where that saves a pass: `up`, `up_parts` and `gain` of
/// the pass are ignored, and so are `out` and `totals` of the product, which is one of `times` or `input_grad`.
/// Bytes of the workspace, from a 16-byte boundary on; nothing where the GPU has no kernel for the product, x is
/// neither of the floats' dtype nor, of three parts, float32, or an array does not begin on a boundary of 16 bytes.
std::optional<std::int64_t> mixed_input_grads_bytes(const Gpu&, const MixedProduct&, const InputPass&);
/// Status::bad_shape where there is no kernel.
Status mixed_input_grads(const MixedProduct&, const InputPass&, const InputRule&, const Scalar& scale_a,
                         void* workspace, const Queue&);

}  // namespace bie::kernels::cuda
