// How large the inputs of a linear are: sums of squares in double, in the order of the rows.
#pragma once

#include <cstdint>
#include <vector>

namespace bie::llm {

class SquareSums {
 public:
  /// x [rows, size].
  void add(const float* x, std::int64_t rows, std::int64_t size) {
    squares_.resize(static_cast<std::size_t>(size));
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = 0; i < size; ++i) {
        const double value = x[r * size + i];
        squares_[static_cast<std::size_t>(i)] += value * value;
      }
    rows_ += rows;
  }

  /// The mean of x^2 for each input, rounded to float32.
  std::vector<float> means() const {
    std::vector<float> means;
    for (const double square : squares_) means.push_back(static_cast<float>(square / static_cast<double>(rows_)));
    return means;
  }

 private:
  std::vector<double> squares_;
  std::int64_t rows_ = 0;
};

}  // namespace bie::llm
