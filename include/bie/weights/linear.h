// A weight arranged for products: any file's matrix becomes panels once, on all threads, and no other form in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"
#include "bie/weights/coded_columns.h"
#include "bie/weights/file_matrix.h"

namespace bie::weights {

/// How activations meet codes.
enum class Arithmetic : std::uint8_t {
  exact,  ///< as float32: docs/spec/weight-only.md#forward-and-backward
  int8,   ///< as 8-bit codes with a step for each row and group: docs/spec/weight-only.md#int8-activations
};

/// y [m, outputs] = x [m, inputs] . W^T (+ bias). The results of a row depend on neither m, nor the kernel, nor
/// threads.
class Linear {
 public:
  Linear() = default;
  /// Arranges the matrix for the best kernel of this process. Plain numbers are float32 products in either arithmetic,
  /// and those of 16 bits stay such in memory.
  /// @param bias       [outputs] or nothing; kept.
  /// @param one_scale  in int8 a ternary matrix whose scales are one number is multiplied with one step for each row.
  /// @throws formats::Error for NaN or infinity in a scale, groups too deep for int8; std::bad_alloc.
  Linear(const FileMatrix& matrix, Arithmetic arithmetic, std::shared_ptr<const float[]> bias,
         const kernels::Parallel& parallel, bool one_scale = false);
  /// Arranges a linear of a folder, its bias with it, or `bias` where that is there.
  Linear(const CodedColumns& columns, Arithmetic arithmetic, const std::shared_ptr<const float[]>& bias,
         const kernels::Parallel& parallel);

  std::int64_t inputs() const { return inputs_; }
  std::int64_t outputs() const { return outputs_; }
  /// Bytes of the arrangement.
  std::int64_t bytes() const { return bytes_; }

  /// x and y float32, rows `inputs()` and `outputs()` floats apart.
  kernels::Status run(std::int64_t m, const float* x, float* y, const kernels::Parallel& parallel) const;

 private:
  enum class Kind : std::uint8_t { codes, floats, halves };

  void arrange_floats(const FileMatrix& matrix);
  void arrange_halves(const FileMatrix& matrix, const kernels::Parallel& parallel);
  void keep(Kind kind, const void* kernel, std::shared_ptr<const void> panels, std::size_t bytes);
  bool arrange_as_one_scale(const FileMatrix& matrix, const kernels::Parallel& parallel);
  template <class Weight>
  void arrange(const std::string& what, const Weight& weight, Arithmetic arithmetic, const kernels::Parallel& parallel);

  std::int64_t inputs_ = 0, outputs_ = 0, bytes_ = 0;
  const void* kernel_ = nullptr;  ///< a WeightOnlyGemmKernel, a FloatGemmKernel or a HalfGemmKernel
  Kind kind_ = Kind::codes;
  std::shared_ptr<const void> panels_;
  std::shared_ptr<const float[]> bias_, channel_scale_;
};

}  // namespace bie::weights
