// Step sizes and quantisers of whole tensors. Where the CPU refuses the value of an element, CUDA returns NaN, because
// reading the value would wait for the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "bie/kernels/amax_codes.h"
#include "ops/backend/scales.h"
#include "ops/dispatcher.h"

namespace bie::ops {

/// Code range of a q8 or q4 layer, and how its initial step size follows from the data.
struct CodeRange {
  int lo, hi;
  double mean_to_step;  ///< step size = mean_to_step * mean|x|
};

/// Throws a ValueError unless a largest element is a finite number >= 0.
void check_amax(const char* op, float amax);

class Quantizers {
 public:
  using Pair = std::tuple<at::Tensor, at::Tensor>;  ///< codes, and the scale that they were made with

  /// max(float(c * mean|x|), floor), the mean in float64. Where x holds NaN or infinity, a ValueError that calls it
  /// `name` on the CPU, and NaN on CUDA.
  virtual Scale mean_scale(const char* op, const char* name, const at::Tensor& x, double c, float floor) const = 0;
  /// Where scale_a, float32, is 0: scale_a = c * mean|x|, in place; check() is called before x is read.
  virtual void init_scale(const char* op, const at::Tensor& scale_a, const at::Tensor& x, double c,
                          void (*check)(const char* op, const at::Tensor& x, double c)) const = 0;
  /// With max(scale, floor); with the scale of the mean where none is given.
  virtual Pair quantize(const char* op, const at::Tensor& x, const OptTensor& scale, float floor,
                        const CodeRange& range) const = 0;
  /// int8 codes of a float tensor with true division by max(scale, floor) > 0, same shape, dense. NaN has no code: on
  /// the CPU it is a ValueError, as infinity is, on CUDA 0.
  virtual at::Tensor quantize_codes(const char* op, const at::Tensor& x, const Scale& scale, float floor,
                                    const CodeRange& range) const = 0;
  virtual Pair amax_quantize(const char* op, const at::Tensor& x, const OptTensor& amax,
                             const kernels::AmaxRange& range) const = 0;
  /// int8_grad of a float gradient that is not empty.
  virtual at::Tensor int8_codes(const char* op, const Scaled& grad) const = 0;
  virtual Pair binary_init(const char* op, const at::Tensor& weight) const = 0;
  /// Throws a ValueError naming the tensor where int8 codes lie outside the range. One pass. On CUDA nothing is
  /// checked, and the kernels there take such a code as the nearest bound.
  virtual void check_codes(const char* op, const char* name, const at::Tensor& codes, const CodeRange& range) const = 0;
  /// Refuses codes with a scale of 0, which only floats can initialise; not on CUDA.
  virtual void check_scale_of_codes(const char* op, const Scale& scale) const = 0;
  /// A scale of 0 is one whose first batch was all zeros or empty; throws where x tells that it is just not
  /// initialised. Not on CUDA.
  virtual void check_initialised(const char* op, const char* name, const at::Tensor& x, const Scale& scale) const = 0;

 protected:
  ~Quantizers() = default;
};

}  // namespace bie::ops
