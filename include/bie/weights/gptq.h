// GPTQ: each column's error is made good by the columns after it.
// Source: docs/spec/quantization.md#gptq.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bie/formats/group_grid.h"
#include "bie/kernels/parallel.h"

namespace bie::weights {

/// The search for codes adds D to H: D = shrinkage * diag(H) + damping * mean(diag H) * I.
struct Regularization {
  double shrinkage = 1;  ///< A text of thousands of tokens tells products of two inputs less well than squares of one.
  double damping = 0.05;
};

/// The error of a column hands on shares to the columns after it. Columns stand in an order, those of the largest
/// inputs first: H + D = R . R^T with an upper triangle R.
class ErrorFeedback {
 public:
  /// @param what    begins sentences.
  /// @param moment  H [size, size].
  /// @throws formats::Error where H holds NaN or infinity, or is no sum of squares.
  ErrorFeedback(const std::string& what, const std::vector<double>& moment, std::int64_t size,
                const kernels::Parallel& parallel, const Regularization& added = {});

  std::int64_t size() const { return size_; }
  /// F [size, size]: at (j, i), j < i, the share R[j, i] / R[i, i] of column j's error that column i takes.
  const double* shares() const { return factor_.data(); }
  /// The columns in their order.
  const std::int64_t* order() const { return order_.data(); }
  /// R[i, i]^2, what the squared error of a column costs, by the columns as they are.
  const std::vector<float>& costs() const { return costs_; }

 private:
  std::int64_t size_;
  std::vector<double> factor_;
  std::vector<std::int64_t> order_;
  std::vector<float> costs_;
};

/// Codes of a matrix stand for s * q - z, with s and z of each row and group.
struct CodeGrid {
  std::int64_t group;  ///< consecutive columns
  int most;            ///< the largest code
  int zero = 0;        ///< where it is not 0, codes stand for s * (q - zero)
};

/// Opens a row: its weights [columns] and the scales and zeros of its groups. Threads share it.
using OpenRow = std::function<void(std::int64_t row, float* values, float* scales, float* zeros)>;
/// Takes the codes [columns] of a row. Threads share it.
using TakeCodes = std::function<void(std::int64_t row, const std::uint8_t* codes)>;

/// Codes of a matrix [rows, feedback.size()] on a grid that is given.
/// @throws what `open` and `take` throw.
void gptq_codes(const CodeGrid& grid, std::int64_t rows, const OpenRow& open, const TakeCodes& take,
                const ErrorFeedback& feedback, const kernels::Parallel& parallel);

/// Codes in groups, and the numbers beside them.
struct GptqGroups {
  std::vector<std::uint8_t> codes;   ///< [rows, columns]
  std::vector<float> scales, zeros;  ///< [rows, groups], W = s * q - z
  std::vector<std::int32_t> whole;   ///< [rows, groups] of whole zeros, z = s * whole; else empty
};

/// The codes of weights [rows, feedback.size()], whose grids are those of a search with the costs of the feedback.
/// @param group  columns that share a scale; the last group may have fewer.
/// @throws formats::Error beginning with `what` where a scale or a zero is beyond the numbers of the grids.
GptqGroups gptq_groups(const std::string& what, const formats::GroupGrids& grids, std::int64_t group,
                       const float* weights, std::int64_t rows, const ErrorFeedback& feedback,
                       const kernels::Parallel& parallel);

}  // namespace bie::weights
