#include "llm/gptq.h"

#include <algorithm>
#include <cmath>

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

constexpr std::int64_t rows_together = 64, columns_together = 32;
/// A text of thousands of tokens tells products of two inputs less well than squares of one.
constexpr double own_again = 1, damping = 0.05;

/// A few rows of the matrix, their columns in the order of the feedback.
class Rows {
 public:
  Rows(const std::string& what, const GgufType& type, const ErrorFeedback& feedback)
      : what_(what),
        type_(type),
        feedback_(feedback),
        gemm_(kernels::choose(kernels::double_gemm_table(), kernels::DoubleGemm{}, kernels::host().isas)),
        columns_(feedback.size()),
        groups_(columns_ / type.group),
        most_(formats::gguf_most_code(type)) {}

  /// `blocks` are the rows' own.
  void round(std::int64_t first, std::int64_t count, const ReadRow& read, std::uint8_t* blocks) {
    count_ = count;
    for (auto* list : {&values_, &errors_}) list->resize(static_cast<std::size_t>(count * columns_));
    codes_.resize(values_.size());
    for (auto* list : {&scales_, &zeros_}) list->resize(static_cast<std::size_t>(count * groups_));
    for (std::int64_t r = 0; r < count; ++r) open(r, first + r, read, blocks + r * row_bytes());
    for (std::int64_t at = 0; at < columns_; at += columns_together)
      round_columns(at, std::min(columns_together, columns_ - at));
    for (std::int64_t r = 0; r < count; ++r) close(r, blocks + r * row_bytes());
  }

 private:
  std::int64_t row_bytes() const { return columns_ / type_.weights * type_.bytes; }

  /// The scales of a row are those of a search.
  void open(std::int64_t r, std::int64_t row, const ReadRow& read, std::uint8_t* blocks) {
    std::vector<float> values(static_cast<std::size_t>(columns_));
    read(row, values.data());
    const std::vector<std::uint8_t> searched =
        formats::gguf_rounded(what_, type_, values.data(), 1, columns_, feedback_.costs().data());
    std::copy(searched.begin(), searched.end(), blocks);
    formats::gguf_row(type_, blocks, columns_, codes_.data() + r * columns_, scales_.data() + r * groups_,
                      zeros_.data() + r * groups_);
    for (std::int64_t i = 0; i < columns_; ++i)
      values_[static_cast<std::size_t>(r * columns_ + i)] = static_cast<double>(values[feedback_.order()[i]]);
  }

  void close(std::int64_t r, std::uint8_t* blocks) {
    const std::uint8_t* codes = codes_.data() + r * columns_;
    for (std::int64_t at = 0; at < columns_; at += type_.weights, blocks += type_.bytes)
      formats::gguf_put_codes(type_, codes + at, blocks);
  }

  /// The columns [at, at + width) are to stand for their values and their shares of all errors before them.
  void round_columns(std::int64_t at, std::int64_t width) {
    wanted_.resize(static_cast<std::size_t>(count_ * columns_together));
    for (std::int64_t r = 0; r < count_; ++r)
      std::copy_n(values_.begin() + r * columns_ + at, width, wanted_.begin() + r * columns_together);
    gemm_.run({count_,
               width,
               at,
               {errors_.data(), columns_, 1},
               {feedback_.shares() + at, columns_, 1},
               wanted_.data(),
               columns_together},
              kernels::serial());
    for (std::int64_t i = 0; i < width; ++i) round_column(at, i, width);
  }

  void round_column(std::int64_t at, std::int64_t i, std::int64_t width) {
    const double* const shares = feedback_.shares() + (at + i) * columns_ + at;
    const std::int64_t column = feedback_.order()[at + i], group = column / type_.group;
    for (std::int64_t r = 0; r < count_; ++r) {
      double* const wanted = wanted_.data() + r * columns_together;
      const auto of_group = static_cast<std::size_t>(r * groups_ + group);
      std::uint8_t* const code = codes_.data() + r * columns_ + column;
      const auto place = static_cast<std::size_t>(r * columns_ + at + i);
      const double error =
          values_[place] - static_cast<double>(nearest(wanted[i], scales_[of_group], zeros_[of_group], code));
      errors_[place] = error;
      for (std::int64_t j = i + 1; j < width; ++j) wanted[j] += error * shares[j];
    }
  }

  /// The nearest value of a group, and its code.
  float nearest(double wanted, float s, float z, std::uint8_t* code) const {
    const double zero = type_.zero != 0 ? type_.zero : s == 0 ? 0 : static_cast<double>(z) / static_cast<double>(s);
    const double place = s == 0 ? zero : wanted / static_cast<double>(s) + zero;
    const int q = static_cast<int>(std::nearbyint(std::clamp(place, 0.0, static_cast<double>(most_))));
    *code = static_cast<std::uint8_t>(q);
    return type_.zero != 0 ? s * static_cast<float>(q - type_.zero) : s * static_cast<float>(q) - z;
  }

  const std::string& what_;
  const GgufType& type_;
  const ErrorFeedback& feedback_;
  const kernels::DoubleGemmKernel& gemm_;
  std::int64_t columns_, groups_, count_ = 0;
  int most_;
  std::vector<double> values_, errors_, wanted_;  ///< [count, columns] in the order, [count, columns_together]
  std::vector<std::uint8_t> codes_;               ///< [count, columns] as in the file
  std::vector<float> scales_, zeros_;             ///< [count, groups]
};

}  // namespace

ErrorFeedback::ErrorFeedback(const std::string& what, const std::vector<double>& moment, std::int64_t size,
                             const kernels::Parallel& parallel)
    : size_(size), factor_(moment.size()), costs_(static_cast<std::size_t>(size)) {
  const auto n = static_cast<std::size_t>(size);
  for (std::int64_t i = 0; i < size; ++i) order_.push_back(i);
  std::stable_sort(order_.begin(), order_.end(), [&](std::int64_t a, std::int64_t b) {
    return moment[static_cast<std::size_t>(a) * (n + 1)] > moment[static_cast<std::size_t>(b) * (n + 1)];
  });
  double mean = 0;
  for (std::size_t i = 0; i < n; ++i) mean += moment[i * n + i];
  mean = mean == 0 ? 1 : mean / static_cast<double>(size);
  for (std::size_t i = 0; i < n; ++i) {
    const auto row = static_cast<std::size_t>(order_[i]) * n;
    for (std::size_t j = 0; j < n; ++j) factor_[i * n + j] = moment[row + static_cast<std::size_t>(order_[j])];
    factor_[i * n + i] += own_again * factor_[i * n + i] + damping * mean;
  }
  // The lower triangle of the columns in reverse is an upper one of the columns as they are.
  std::reverse(factor_.begin(), factor_.end());
  if (!kernels::cholesky(factor_.data(), size, parallel))
    throw Error(joined(what, ": the inputs on this text are NaN or infinite"));
  std::reverse(factor_.begin(), factor_.end());
  for (std::size_t i = 0; i < n; ++i) {
    const double own = factor_[i * n + i];
    costs_[static_cast<std::size_t>(order_[i])] = static_cast<float>(own * own);
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
