// Weights of packed codes in words, behind the operators' checks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "bie/kernels/code_step.h"
#include "bie/kernels/weight_values.h"
#include "bie/ops.h"
#include "ops/checks.h"

namespace bie::ops {

/// A weight [k, n] whose tensors are proved to fit.
struct CodedWeight {
  at::Tensor words;               ///< int32 [words, n]
  at::Tensor scales;              ///< [groups, n], float32, bfloat16 or float16
  at::Tensor zeros;               ///< like scales, int32 [groups, n] in 1 ... 2^bits, or undefined
  at::Tensor group_of, input_of;  ///< int32 [k]; input_of may be undefined
  std::vector<kernels::BitRun> runs;
  std::int64_t k, n, groups;
  kernels::Offset offset;
  std::uint32_t version;  ///< how often words, scales and zeros were written to
};

kernels::Dtype float_dtype(const at::Tensor& t);
/// The weight as kernels see it; pointers are null for a meta tensor.
kernels::PackedWeight packed_of(const CodedWeight& w);

/// Throws a ValueError where panels were made for the other kind of activations.
void check_panels_activations(const char* op, bool of_int8, bool int8_activations);

class WeightOnly {
 public:
  /// Throws a ValueError where g_idx, q_perm, scales or zeros hold what they must not; on CUDA nothing is read back.
  virtual void check_values(const char* op, const CodedWeight& w) const = 0;

  // int8_activations: bie/kernels/weight_only_q8.h, of a weight whose groups have at most most_q8_rows rows. Panels are
  // made for one kind of activations and refused with the other.

  /// Panels of a weight, on its device; without values for a meta tensor.
  virtual at::Tensor prepack(const char* op, const CodedWeight& w, bool int8_activations) const = 0;
  /// Whether panels came from this weight as it is.
  virtual bool are_current(const char* op, const at::Tensor& panels, const CodedWeight& w,
                           bool int8_activations) const = 0;
  /// Whether `linear` of current panels reads the weight itself too.
  virtual bool reads_weight(const Rows& x, const at::Tensor& factor, bool int8_activations) const = 0;
  /// y [m, n] of rows x, times `factor` [k] in float32 where that is defined; of current panels or undefined ones.
  virtual void linear(const char* op, const Rows& x, const at::Tensor& factor, const CodedWeight& w,
                      const at::Tensor& panels, const at::Tensor& bias, bool int8_activations,
                      const at::Tensor& y) const = 0;

  /// In which dtype gradients of activations of that one multiply; sums are float32.
  virtual at::ScalarType gradient_dtype(at::ScalarType x) const = 0;

  /// W [k, n].
  virtual at::Tensor open(const char* op, const CodedWeight& w, at::ScalarType dtype) const = 0;
  /// The words of float32 values [k, n], with the scales and zeros of w.
  virtual at::Tensor pack(const char* op, const CodedWeight& w, const at::Tensor& values, bool at_random,
                          std::uint64_t random) const = 0;
  /// One step in place; see kernels::WeightStep. l and s may be undefined, and so may rest.
  virtual void step(const char* op, const CodedWeight& w, const at::Tensor& grad, const at::Tensor& l,
                    const at::Tensor& s, const at::Tensor& rest, const DiodeMixStep& o, bool moves_zeros) const = 0;
  /// One step in place of each weight whose place between two codes is kept; all pointers are of the device of `words`.
  virtual void step_places(const char* op, const at::Tensor& words,
                           const std::vector<kernels::CodeStep>& steps) const = 0;

 protected:
  ~WeightOnly() = default;
};

}  // namespace bie::ops
