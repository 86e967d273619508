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

/// What the error of a column means for the others: H + d I = R . R^T with an upper triangle R.
class ErrorFeedback {
 public:
  /// @param what    begins sentences.
  /// @param moment  H [size, size].
  /// @throws formats::Error where H holds NaN or infinity.
  ErrorFeedback(const std::string& what, std::vector<double> moment, std::int64_t size,
                const kernels::Parallel& parallel);

  std::int64_t size() const { return size_; }
  /// F [size, size]: at (j, i), j < i, the share R[j, i] / R[i, i] of column j's error that column i takes.
  const double* shares() const { return factor_.data(); }
  /// R[i, i]^2, what the squared error of column i costs.
  const std::vector<float>& costs() const { return costs_; }

 private:
  std::int64_t size_;
  std::vector<double> factor_;
  std::vector<float> costs_;
};

/// Blocks of a type with codes, of rows that are opened a few at a time.
/// @throws what `read` throws, and formats::Error as gguf_rounded does.
std::vector<std::uint8_t> gptq_rows(const std::string& what, const formats::GgufType& type, std::int64_t rows,
                                    const ReadRow& read, const ErrorFeedback& feedback,
                                    const kernels::Parallel& parallel);

}  // namespace bie::llm
