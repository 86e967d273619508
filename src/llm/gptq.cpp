#include "llm/gptq.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "bie/formats/error.h"
#include "bie/formats/gguf_writer.h"
#include "bie/kernels/cholesky.h"
#include "bie/kernels/double_gemm.h"
#include "bie/kernels/isa.h"
#include "bie/kernels/shared_rows.h"

namespace bie::llm {
namespace {

using formats::Error;
using formats::GgufType;
using formats::joined;

constexpr std::int64_t rows_together = 32, columns_together = 32;
constexpr int most_weights = 256, most_groups = 16;  // of a block
constexpr double damping = 0.01;
constexpr int raises = 3;  // of the damping, tenfold

/// The scales of a row's block, and codes for it.
struct BlockGrid {
  std::uint8_t codes[most_weights];
  float scales[most_groups], zeros[most_groups];
};

/// A few rows of the matrix, from their first column to their last.
class Rows {
 public:
  Rows(const std::string& what, const GgufType& type, const ErrorFeedback& feedback)
      : what_(what),
        type_(type),
        feedback_(feedback),
        gemm_(kernels::choose(kernels::double_gemm_table(), kernels::DoubleGemm{}, kernels::host().isas)),
        columns_(feedback.size()),
        span_(std::max<std::int64_t>(columns_together, type.weights)),
        most_(formats::gguf_most_code(type)) {}

  void round(std::int64_t first, std::int64_t count, const ReadRow& read, std::uint8_t* blocks) {
    count_ = count;
    values_.resize(static_cast<std::size_t>(count * columns_));
    errors_.assign(values_.size(), 0);
    std::vector<float> row(static_cast<std::size_t>(columns_));
    for (std::int64_t r = 0; r < count; ++r) {
      read(first + r, row.data());
      if (!std::all_of(row.begin(), row.end(), [](float v) { return std::isfinite(v); }))
        throw Error(joined(what_, ": the values hold NaN or infinity"));
      std::copy(row.begin(), row.end(), values_.begin() + r * columns_);
    }
    for (std::int64_t at = 0; at < columns_; at += span_) round_span(at, std::min(span_, columns_ - at), blocks);
  }

 private:
  /// wanted_ [count, width] += the shares of the errors of columns [from, to) that the columns from `at` on take.
  void take_errors(std::int64_t from, std::int64_t to, std::int64_t at, std::int64_t width, double* wanted) {
    gemm_.run({count_,
               width,
               to - from,
               {errors_.data() + from, columns_, 1},
               {feedback_.shares() + from * columns_ + at, columns_, 1},
               wanted,
               span_},
              kernels::serial());
  }

  /// Whole blocks: one of a type of wide blocks, or those in 32 columns.
  void round_span(std::int64_t at, std::int64_t width, std::uint8_t* blocks) {
    wanted_.resize(static_cast<std::size_t>(count_ * span_));
    for (std::int64_t r = 0; r < count_; ++r)
      std::copy_n(values_.begin() + r * columns_ + at, width, wanted_.begin() + r * span_);
    take_errors(0, at, at, width, wanted_.data());
    grids_.resize(static_cast<std::size_t>(count_));
    for (std::int64_t r = 0; r < count_; ++r) open_grid(r, at, block_of(blocks, r, at));
    for (std::int64_t part = 0; part < width; part += columns_together) {
      const std::int64_t of_part = std::min(columns_together, width - part);
      take_errors(at, at + part, at + part, of_part, wanted_.data() + part);
      for (std::int64_t i = part; i < part + of_part; ++i) round_column(at, i, part + of_part);
    }
    for (std::int64_t r = 0; r < count_; ++r)
      formats::gguf_put_codes(type_, grids_[static_cast<std::size_t>(r)].codes, block_of(blocks, r, at));
  }

  std::uint8_t* block_of(std::uint8_t* blocks, std::int64_t row, std::int64_t column) const {
    return blocks + (row * columns_ + column) / type_.weights * type_.bytes;
  }

  /// The scales that suit what is wanted of the block now.
  void open_grid(std::int64_t row, std::int64_t at, std::uint8_t* block) {
    float wanted[most_weights];
    const double* const from = wanted_.data() + row * span_;
    for (std::int64_t i = 0; i < type_.weights; ++i) wanted[i] = static_cast<float>(from[i]);
    const std::vector<std::uint8_t> made =
        formats::gguf_rounded(what_, type_, wanted, 1, type_.weights, feedback_.costs().data() + at);
    std::copy(made.begin(), made.end(), block);
    BlockGrid& grid = grids_[static_cast<std::size_t>(row)];
    formats::gguf_row(type_, block, type_.weights, grid.codes, grid.scales, grid.zeros);
  }

  /// Codes of a column of the span; what errors they leave goes to the columns before `end`.
  void round_column(std::int64_t at, std::int64_t i, std::int64_t end) {
    const double* const shares = feedback_.shares() + (at + i) * columns_ + at;
    for (std::int64_t r = 0; r < count_; ++r) {
      BlockGrid& grid = grids_[static_cast<std::size_t>(r)];
      double* const wanted = wanted_.data() + r * span_;
      const float s = grid.scales[i / type_.group];
      float value;
      if (type_.zero != 0) {
        const auto zero = static_cast<double>(type_.zero);
        const int q = s == 0 ? type_.zero : code_of(wanted[i] / static_cast<double>(s) + zero);
        grid.codes[i] = static_cast<std::uint8_t>(q);
        value = s * static_cast<float>(q - type_.zero);
      } else {
        const float z = grid.zeros[i / type_.group];
        const int q = s == 0 ? 0 : code_of((wanted[i] + static_cast<double>(z)) / static_cast<double>(s));
        grid.codes[i] = static_cast<std::uint8_t>(q);
        value = s * static_cast<float>(q) - z;
      }
      const auto place = static_cast<std::size_t>(r * columns_ + at + i);
      const double error = values_[place] - static_cast<double>(value);
      errors_[place] = error;
      for (std::int64_t j = i + 1; j < end; ++j) wanted[j] += error * shares[j];
    }
  }

  int code_of(double place) const {
    return static_cast<int>(std::nearbyint(std::clamp(place, 0.0, static_cast<double>(most_))));
  }

  const std::string& what_;
  const GgufType& type_;
  const ErrorFeedback& feedback_;
  const kernels::DoubleGemmKernel& gemm_;
  std::int64_t columns_, span_, count_ = 0;
  int most_;
  std::vector<double> values_, errors_, wanted_;  ///< [count, columns], and [count, span]
  std::vector<BlockGrid> grids_;
};

}  // namespace

ErrorFeedback::ErrorFeedback(const std::string& what, std::vector<double> moment, std::int64_t size,
                             const kernels::Parallel& parallel)
    : size_(size) {
  const auto n = static_cast<std::size_t>(size);
  double mean = 0;
  for (std::size_t i = 0; i < n; ++i) mean += moment[i * n + i];
  mean /= static_cast<double>(size);
  if (!std::isfinite(mean)) throw Error(joined(what, ": the inputs on this text are NaN or infinite"));
  double added = mean == 0 ? 1 : damping * mean;
  for (int tries = 0;; ++tries, added *= 10) {
    factor_ = moment;
    for (std::size_t i = 0; i < n; ++i) factor_[i * n + i] += added;
    // The lower triangle of the columns in reverse is an upper one of the columns as they are.
    std::reverse(factor_.begin(), factor_.end());
    if (kernels::cholesky(factor_.data(), size, parallel)) break;
    if (tries == raises) throw Error(joined(what, ": the inputs on this text are NaN or infinite"));
  }
  moment.clear();
  std::reverse(factor_.begin(), factor_.end());
  for (std::size_t i = 0; i < n; ++i) {
    const double own = factor_[i * n + i];
    costs_.push_back(static_cast<float>(own * own));
  }
  kernels::share_rows(parallel, size, 16, [&](std::int64_t begin, std::int64_t end) {
    for (auto j = static_cast<std::size_t>(begin); j < static_cast<std::size_t>(end); ++j)
      for (std::size_t i = j + 1; i < n; ++i) factor_[j * n + i] /= factor_[i * n + i];
  });
}

std::vector<std::uint8_t> gptq_rows(const std::string& what, const GgufType& type, std::int64_t rows,
                                    const ReadRow& read, const ErrorFeedback& feedback,
                                    const kernels::Parallel& parallel) {
  const std::int64_t row_bytes = feedback.size() / type.weights * type.bytes;
  std::vector<std::uint8_t> blocks(static_cast<std::size_t>(rows * row_bytes));
  kernels::share_rows(parallel, rows, rows_together, [&](std::int64_t begin, std::int64_t end) {
    Rows some(what, type, feedback);
    for (std::int64_t at = begin; at < end; at += rows_together)
      some.round(at, std::min(rows_together, end - at), read, blocks.data() + at * row_bytes);
  });
  return blocks;
}

}  // namespace bie::llm
