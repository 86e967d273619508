// GPTQ on the grid of a GGUF type: each column's error is made good by the columns after it.
// Source: docs/spec/quantization.md#gptq, docs/spec/language-models.md#gptq-on-the-grid-of-a-type.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bie/formats/gguf.h"
#include "bie/kernels/parallel.h"
#include "llm/rounded_rows.h"

namespace bie::llm {

/// The error of a column hands on shares to the columns after it. Columns stand in an order, those of the largest
/// inputs first: H + D = R . R^T with an upper triangle R and D = diag(H) + 0.05 mean(diag H) I.
class ErrorFeedback {
 public:
  /// @param what    begins sentences.
  /// @param moment  H [size, size].
  /// @throws formats::Error where H holds NaN or infinity.
  ErrorFeedback(const std::string& what, const std::vector<double>& moment, std::int64_t size,
                const kernels::Parallel& parallel);

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

/// Blocks of a type with codes, of rows that are opened a few at a time.
/// @throws what `read` throws, and formats::Error as gguf_rounded does.
std::vector<std::uint8_t> gptq_rows(const std::string& what, const formats::GgufType& type, std::int64_t rows,
                                    const ReadRow& read, const ErrorFeedback& feedback,
                                    const kernels::Parallel& parallel);

}  // namespace bie::llm
