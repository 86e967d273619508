// Products of codes, forward and backward, on tensors. `code` is the table's: bits, s8 or s4.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "bie/kernels/conv2d.h"
#include "bie/kernels/gemm.h"
#include "ops/backend/input_gradients.h"
#include "ops/backend/operands.h"
#include "ops/backend/quantizers.h"
#include "ops/checks.h"

namespace bie::ops {

struct GemmBatch;

/// Codes: one int8 each; or only their signs count.
struct Codes {
  at::Tensor values;
  bool signs = false;
};

/// One side of a product in a backward pass: whole numbers of at most nine bits.
struct Factor {
  at::Tensor operand;  ///< what values() takes, all of it or some of its columns
  /// The values times `by`, as floats.
  std::function<at::Tensor(const at::Tensor& operand, at::ScalarType dtype, const Scale& by)> values;
  std::function<Codes()> codes;  ///< empty: not to be had as codes
};

/// The gradient g [m, n] of a linear layer's or a batched product's output in the two products of its backward pass.
/// Both are float32; on CUDA the factor's scale may be left to the pass behind them. With a batch axis in front of g
/// and of the factor each entry is a product of its own.
///
/// On the CPU float32 is multiplied, on AMX as three bfloat16 parts. On CUDA the tensor cores multiply 16-bit floats,
/// which hold codes exactly, and add in float32: a 16-bit g as it is, a float32 one as the sum of three bfloat16 parts,
/// 24 bits, one product each. GPUs before sm_80 multiply float32.
class OutputGrad {
 public:
  virtual ~OutputGrad() = default;
  /// (g . f) * scale, f [n, k].
  Scaled times(const Factor& f, const Scale& scale) const { return multiplied(f, scale, /*transposed=*/false); }
  /// (g^T . f) * scale, f [m, k].
  Scaled transposed_times(const Factor& f, const Scale& scale) const { return multiplied(f, scale, true); }
  /// InputGradients::of_layer of times(f, scale).
  virtual InputGrads input_grads(const Factor& f, const Scale& scale, const LinearInput& in,
                                 const kernels::InputRule& rule, bool want_codes) const = 0;

 private:
  virtual Scaled multiplied(const Factor& f, const Scale& scale, bool transposed) const = 0;
};

class Products {
 public:
  /// acc or y of shape [m, n] written into `out`. Panels bring their own kernel on the CPU; on CUDA all kernels read
  /// the same.
  virtual void gemm(const char* op, kernels::Dtype code, const kernels::GemmShape& shape, const Rows& x,
                    kernels::Dtype dtype, const Quantiser& q, const Weight& weight, const at::Tensor& out,
                    std::int64_t kernel_id) const = 0;
  /// All products of a batch into out, dense [count, m, n].
  /// @param y  `values` dense in what Weight wants of one matrix; each is arranged once however often it is used.
  virtual void gemm_batch(const char* op, kernels::Dtype code, const GemmBatch& batch, const at::Tensor& x,
                          const Quantiser& q, const Weight& y, const at::Tensor& out) const = 0;
  /// x is dense in its suggested memory format, and so is out. On CUDA a filter of floats or codes of one byte may
  /// have groups, else it is of one.
  virtual void conv2d(const char* op, kernels::Dtype code, const kernels::Conv2dShape& shape, const at::Tensor& x,
                      const Quantiser& q, const Weight& weight, const at::Tensor& out) const = 0;

  /// Panels of a packed weight, on its device; without values for a meta tensor.
  virtual at::Tensor prepack_gemm(const char* op, kernels::Dtype code, const at::Tensor& weight, std::int64_t n,
                                  std::int64_t k, std::int64_t kernel_id) const = 0;
  virtual at::Tensor prepack_conv2d(const char* op, kernels::Dtype code, const at::Tensor& weight,
                                    const kernels::Conv2dShape& shape) const = 0;
  /// The panels that came with a packed weight, undefined where the weight was written to since they were made, as a
  /// compiled graph goes on handing them over, or where this machine lacks their kernel. Not told for panels on CUDA,
  /// which have no header, nor where the weight is there for its shape alone (strides of 0).
  virtual at::Tensor panels_of(const at::Tensor& weight, const at::Tensor& panels) const = 0;

  /// The operand made of the signs of a weight [n, ...]: packed on the CPU; CUDA packs while it arranges panels.
  virtual Weight signs(const char* op, const at::Tensor& weight) const = 0;
  /// Like signs(), but on the CPU a ValueError if the weight holds NaN or infinity, which have a sign bit.
  virtual Weight finite_signs(const char* op, const char* name, const at::Tensor& weight) const = 0;
  /// The operand made of floats that are quantised with max(scale, floor) to the range of `code`; refused on the CPU as
  /// finite_signs refuses.
  virtual Weight quantised(const char* op, kernels::Dtype code, const at::Tensor& weight, const Scale& scale,
                           float floor, const CodeRange& range) const = 0;
  /// The operand made of int8 codes, one per byte.
  virtual Weight plain_codes(kernels::Dtype code, const at::Tensor& weight) const = 0;

  virtual std::unique_ptr<OutputGrad> output_grad(const char* op, const at::Tensor& g) const = 0;

 protected:
  ~Products() = default;
};

}  // namespace bie::ops
