#include "bie/weights/gptq.h"

#include <algorithm>
#include <cmath>

#include "bie/formats/error.h"
#include "bie/kernels/cholesky.h"
#include "bie/kernels/double_gemm.h"
#include "bie/kernels/isa.h"
#include "bie/kernels/shared_rows.h"

namespace bie::weights {
namespace {

constexpr std::int64_t rows_together = 64, columns_together = 32;

/// A few rows of the matrix, their columns in the order of the feedback.
class Rows {
 public:
  Rows(const CodeGrid& grid, const ErrorFeedback& feedback)
      : grid_(grid),
        feedback_(feedback),
        gemm_(kernels::choose(kernels::double_gemm_table(), kernels::DoubleGemm{}, kernels::host().isas)),
        columns_(feedback.size()),
        groups_((columns_ + grid.group - 1) / grid.group) {}

  void round(std::int64_t first, std::int64_t count, const OpenRow& open_row, const TakeCodes& take) {
    count_ = count;
    for (auto* list : {&values_, &errors_}) list->resize(static_cast<std::size_t>(count * columns_));
    codes_.resize(values_.size());
    for (auto* list : {&scales_, &zeros_}) list->resize(static_cast<std::size_t>(count * groups_));
    for (std::int64_t r = 0; r < count; ++r) open(r, first + r, open_row);
    for (std::int64_t at = 0; at < columns_; at += columns_together)
      round_columns(at, std::min(columns_together, columns_ - at));
    for (std::int64_t r = 0; r < count; ++r) take(first + r, codes_.data() + r * columns_);
  }

 private:
  void open(std::int64_t r, std::int64_t row, const OpenRow& open_row) {
    opened_.resize(static_cast<std::size_t>(columns_));
    open_row(row, opened_.data(), scales_.data() + r * groups_, zeros_.data() + r * groups_);
    for (std::int64_t i = 0; i < columns_; ++i)
      values_[static_cast<std::size_t>(r * columns_ + i)] =
          static_cast<double>(opened_[static_cast<std::size_t>(feedback_.order()[i])]);
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
    const std::int64_t column = feedback_.order()[at + i], group = column / grid_.group;
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
    const double zero = grid_.zero != 0 ? grid_.zero : s == 0 ? 0 : static_cast<double>(z) / static_cast<double>(s);
    const double place = s == 0 ? zero : wanted / static_cast<double>(s) + zero;
    const int q = static_cast<int>(std::nearbyint(std::clamp(place, 0.0, static_cast<double>(grid_.most))));
    *code = static_cast<std::uint8_t>(q);
    return grid_.zero != 0 ? s * static_cast<float>(q - grid_.zero) : s * static_cast<float>(q) - z;
  }

  const CodeGrid& grid_;
  const ErrorFeedback& feedback_;
  const kernels::DoubleGemmKernel& gemm_;
  std::int64_t columns_, groups_, count_ = 0;
  std::vector<float> opened_;                     ///< [columns] as in the file
  std::vector<double> values_, errors_, wanted_;  ///< [count, columns] in the order, [count, columns_together]
  std::vector<std::uint8_t> codes_;               ///< [count, columns] as in the file
  std::vector<float> scales_, zeros_;             ///< [count, groups]
};

}  // namespace

ErrorFeedback::ErrorFeedback(const std::string& what, const std::vector<double>& moment, std::int64_t size,
                             const kernels::Parallel& parallel, const Regularization& added)
    : size_(size), factor_(moment.size()), costs_(static_cast<std::size_t>(size)) {
  const auto n = static_cast<std::size_t>(size);
  if (!std::all_of(moment.begin(), moment.end(), [](double value) { return std::isfinite(value); }))
    throw formats::Error(formats::joined(what, ": the inputs on this text are NaN or infinite"));
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
    factor_[i * n + i] += added.shrinkage * factor_[i * n + i] + added.damping * mean;
  }
  // The lower triangle of the columns in reverse is an upper one of the columns as they are.
  std::reverse(factor_.begin(), factor_.end());
  if (!kernels::cholesky(factor_.data(), size, parallel))
    throw formats::Error(formats::joined(what, ": H, the products of its inputs, is not positive semidefinite"));
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

void gptq_codes(const CodeGrid& grid, std::int64_t rows, const OpenRow& open, const TakeCodes& take,
                const ErrorFeedback& feedback, const kernels::Parallel& parallel) {
  kernels::share_rows(parallel, rows, rows_together, [&](std::int64_t begin, std::int64_t end) {
    Rows some(grid, feedback);
    for (std::int64_t at = begin; at < end; at += rows_together)
      some.round(at, std::min(rows_together, end - at), open, take);
  });
}

namespace {

const char* name_of(formats::GroupNumbers numbers) {
  return numbers == formats::GroupNumbers::f16    ? "float16"
         : numbers == formats::GroupNumbers::bf16 ? "bfloat16"
                                                  : "float32";
}

}  // namespace

GptqGroups gptq_groups(const std::string& what, const formats::GroupGrids& grids, std::int64_t group,
                       const float* weights, std::int64_t rows, const ErrorFeedback& feedback,
                       const kernels::Parallel& parallel) {
  const std::int64_t columns = feedback.size(), groups = (columns + group - 1) / group;
  const std::vector<float> costs = formats::error_weights("the costs of columns", feedback.costs().data(), columns);
  const auto count = static_cast<std::size_t>(rows * groups);
  GptqGroups made;
  made.codes.resize(static_cast<std::size_t>(rows * columns));
  made.scales.resize(count);
  made.zeros.resize(count);
  if (grids.is_whole) made.whole.resize(count);
  const auto open = [&](std::int64_t row, float* values, float* scales, float* zeros) {
    std::copy_n(weights + row * columns, columns, values);
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t first = g * group;
      const formats::GroupGrid grid = formats::group_grid(grids, values + first, std::min(group, columns - first),
                                                          costs.empty() ? nullptr : costs.data() + first);
      if (!std::isfinite(grid.scale) || !std::isfinite(grid.offset))
        throw formats::Error(
            formats::joined(what, ": a range of the weight is too large for ", name_of(grids.numbers)));
      const auto at = static_cast<std::size_t>(row * groups + g);
      made.scales[at] = scales[g] = grid.scale;
      made.zeros[at] = zeros[g] = grid.offset;
      if (grids.is_whole) made.whole[at] = grid.whole;
    }
  };
  const auto take = [&](std::int64_t row, const std::uint8_t* codes) {
    std::copy_n(codes, columns, made.codes.begin() + row * columns);
  };
  gptq_codes({group, (1 << grids.bits) - 1}, rows, open, take, feedback, parallel);
  return made;
}

}  // namespace bie::weights
