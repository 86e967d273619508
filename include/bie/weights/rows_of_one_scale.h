// Ternary matrices whose groups all have one scale, as BitNet b1.58 trains them: with one step for each row of
// activations, a product of 8-bit activations is one exact sum for each output.
// Source: docs/spec/language-models.md#products.
#pragma once

#include <atomic>
#include <cstdint>

#include "bie/weights/file_matrix.h"

namespace bie::weights {

/// The rows of a matrix as a single group each, with the first scale of the matrix that is not 0. Threads share it.
class RowsOfOneScale {
 public:
  /// Whether codes are ternary, s * (q - 1), and rows no longer than a group of 8-bit activations may be.
  static bool takes(const FileMatrix& matrix);
  /// @param matrix  one that `takes` accepts.
  explicit RowsOfOneScale(const FileMatrix& matrix);

  /// Refers to this object.
  kernels::WeightRows rows() const;
  /// Whether all groups that were opened have that scale, or the scale 0 and codes that are all 1.
  bool are_one() const { return are_one_; }

 private:
  static void open(const void* self, std::int64_t row, std::uint8_t* codes, float* scales, float* zeros);

  kernels::WeightRows rows_;
  float scale_ = 0;
  mutable std::atomic<bool> are_one_{true};
};

}  // namespace bie::weights
