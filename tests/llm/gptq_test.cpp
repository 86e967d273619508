// GPTQ on the grids of GGUF's types: codes by its formula, and less error of outputs than rounding to the nearest.
#include "llm/gptq.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "bie/formats/error.h"
#include "bie/formats/gguf_writer.h"
#include "bie/kernels/parallel.h"
#include "bie/weights/second_moment.h"

namespace bie::llm {
namespace {

using weights::ErrorFeedback, weights::SecondMoment;

/// Numbers of -1 to 1 that every run has alike.
class Numbers {
 public:
  float next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(static_cast<std::int32_t>(state_ >> 32)) * 0x1p-31f;
  }
  std::vector<float> list(std::int64_t count) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(next());
    return values;
  }

 private:
  std::uint64_t state_ = 88172645463325252u;
};

/// Rows of inputs of which neighbours resemble each other and some are large.
std::vector<float> correlated(std::int64_t rows, std::int64_t size, Numbers* numbers) {
  std::vector<float> x = numbers->list(rows * size);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < size; ++i) {
      float& value = x[static_cast<std::size_t>(r * size + i)];
      if (i > 0) value = 0.8f * x[static_cast<std::size_t>(r * size + i - 1)] + 0.4f * value;
    }
  for (std::int64_t r = 0; r < rows; ++r) x[static_cast<std::size_t>(r * size + 3)] *= 20;
  return x;
}

std::vector<double> moment_of(const std::vector<float>& x, std::int64_t size) {
  SecondMoment moment(size);
  moment.add(x.data(), std::ssize(x) / size, kernels::serial());
  return moment.take();
}

std::vector<float> opened(const formats::GgufType& type, const std::vector<std::uint8_t>& blocks, std::int64_t rows,
                          std::int64_t columns) {
  const formats::CodedRows coded = formats::gguf_codes("blocks", type, blocks.data(), rows, columns);
  std::vector<float> values;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto q = static_cast<int>(formats::code_at(coded.words.data() + r * coded.row_words(), coded.bits, c));
      const auto g = static_cast<std::size_t>(r * coded.groups() + c / coded.group);
      values.push_back(coded.zeros.empty() ? coded.scales[g] * static_cast<float>(q - coded.zero)
                                           : coded.scales[g] * static_cast<float>(q) - coded.zeros[g]);
    }
  return values;
}

/// tr((W - V) H (W - V)^T)
double error_of(const std::vector<float>& w, const std::vector<float>& v, const std::vector<double>& h,
                std::int64_t size) {
  double sum = 0;
  for (std::size_t row = 0; row < w.size(); row += static_cast<std::size_t>(size))
    for (std::int64_t i = 0; i < size; ++i)
      for (std::int64_t j = 0; j < size; ++j) {
        const auto a = row + static_cast<std::size_t>(i), b = row + static_cast<std::size_t>(j);
        sum += (static_cast<double>(w[a]) - static_cast<double>(v[a])) * h[static_cast<std::size_t>(i * size + j)] *
               (static_cast<double>(w[b]) - static_cast<double>(v[b]));
      }
  return sum;
}

TEST(SecondMoment, IsTheMeanOfProducts) {
  Numbers numbers;
  constexpr std::int64_t size = 131, rows = 7;
  const std::vector<float> x = numbers.list(rows * size);
  const std::vector<double> h = moment_of(x, size);
  for (std::int64_t i = 0; i < size; ++i)
    for (std::int64_t j = 0; j < size; ++j) {
      double sum = 0;
      for (std::int64_t r = 0; r < rows; ++r)
        sum += static_cast<double>(x[static_cast<std::size_t>(r * size + i)]) *
               static_cast<double>(x[static_cast<std::size_t>(r * size + j)]);
      ASSERT_NEAR(h[static_cast<std::size_t>(i * size + j)], sum / rows, 1e-15) << i << ", " << j;
    }
}

/// Solves A y = e_0 of a positive definite matrix by elimination: the first row of its inverse.
std::vector<double> first_of_inverse(std::vector<double> a, std::size_t n) {
  std::vector<double> y(n);
  y[0] = 1;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t r = i + 1; r < n; ++r) {
      const double factor = a[r * n + i] / a[i * n + i];
      for (std::size_t c = i; c < n; ++c) a[r * n + c] -= factor * a[i * n + c];
      y[r] -= factor * y[i];
    }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t c = i + 1; c < n; ++c) y[i] -= a[i * n + c] * y[c];
    y[i] /= a[i * n + i];
  }
  return y;
}

/// docs/spec/quantization.md#gptq for one row on a grid of scales: each column with an inverse of its own.
std::vector<int> codes_by_formula(const std::vector<float>& w, const std::vector<double>& h,
                                  const std::vector<std::int64_t>& order, const std::vector<float>& scales,
                                  std::int64_t group, int zero, int most) {
  const std::size_t n = w.size();
  std::vector<double> left(n);
  for (std::size_t i = 0; i < n; ++i) left[i] = static_cast<double>(w[static_cast<std::size_t>(order[i])]);
  std::vector<int> codes(n);
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<double> rest;
    for (std::size_t r = i; r < n; ++r)
      for (std::size_t c = i; c < n; ++c)
        rest.push_back(h[static_cast<std::size_t>(order[r]) * n + static_cast<std::size_t>(order[c])]);
    const std::vector<double> inverse = first_of_inverse(rest, n - i);
    const auto s = static_cast<double>(scales[static_cast<std::size_t>(order[i] / group)]);
    const int q = std::clamp(static_cast<int>(std::nearbyint(left[i] / s + zero)), 0, most);
    codes[static_cast<std::size_t>(order[i])] = q;
    const double error = (left[i] - s * (q - zero)) / inverse[0];
    for (std::size_t j = i; j < n; ++j) left[j] -= error * inverse[j - i];
  }
  return codes;
}

TEST(Gptq, CodesAreThoseOfTheFormula) {
  Numbers numbers;
  constexpr std::int64_t size = 96, rows = 3;
  const std::vector<float> x = correlated(200, size, &numbers), w = numbers.list(rows * size);
  std::vector<double> h = moment_of(x, size);
  const ErrorFeedback feedback("w", h, size, kernels::serial());
  double mean = 0;
  for (std::int64_t i = 0; i < size; ++i) mean += h[static_cast<std::size_t>(i * (size + 1))] / size;
  for (std::int64_t i = 0; i < size; ++i) {
    double& own = h[static_cast<std::size_t>(i * (size + 1))];
    own += own + 0.05 * mean;
  }
  const std::vector<std::int64_t> order(feedback.order(), feedback.order() + size);
  EXPECT_EQ(order.front(), 3) << "the column of the largest inputs";
  const formats::GgufType& type = *formats::gguf_type("Q4_0");
  const ReadRow read = [&](std::int64_t row, float* to) { std::copy_n(w.data() + row * size, size, to); };
  const auto blocks = gptq_rows("w", type, rows, read, feedback, kernels::serial());
  for (std::int64_t r = 0; r < rows; ++r) {
    std::vector<std::uint8_t> codes(size);
    std::vector<float> scales(size / 32), zeros(size / 32);
    formats::gguf_row(type, blocks.data() + r * size / 32 * type.bytes, size, codes.data(), scales.data(),
                      zeros.data());
    const std::vector<float> row(w.begin() + r * size, w.begin() + (r + 1) * size);
    EXPECT_EQ(std::vector<int>(codes.begin(), codes.end()), codes_by_formula(row, h, order, scales, 32, 8, 15)) << r;
  }
}

TEST(Gptq, AnInputThatIsAlwaysZeroIsRoundedToTheNearestAndChangesNoOther) {
  Numbers numbers;
  constexpr std::int64_t size = 64;
  std::vector<float> x = correlated(300, size, &numbers), w = numbers.list(size);
  for (std::size_t i = 5; i < x.size(); i += size) x[i] = 0;
  const ErrorFeedback feedback("w", moment_of(x, size), size, kernels::serial());
  EXPECT_EQ(feedback.order()[size - 1], 5);
  for (std::int64_t j = 0; j + 1 < size; ++j) EXPECT_EQ(feedback.shares()[j * size + size - 1], 0) << j;
}

TEST(Gptq, ThreadsDoNotChangeAByte) {
  Numbers numbers;
  constexpr std::int64_t size = 256, rows = 200;
  const std::vector<float> x = correlated(300, size, &numbers), w = numbers.list(rows * size);
  const ReadRow read = [&](std::int64_t row, float* to) { std::copy_n(w.data() + row * size, size, to); };
  std::vector<std::vector<std::uint8_t>> found;
  for (const int threads : {1, 3}) {
    kernels::ThreadTeam team(threads);
    SecondMoment moment(size);
    moment.add(x.data(), 300, team.parallel());
    const ErrorFeedback feedback("w", moment.take(), size, team.parallel());
    found.push_back(gptq_rows("w", *formats::gguf_type("Q3_K"), rows, read, feedback, team.parallel()));
  }
  EXPECT_EQ(found[0], found[1]);
}

TEST(Gptq, InputsThatAreNoNumbersAreNamed) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    std::vector<double> h(32 * 32);
    h[7 * 33] = bad;
    try {
      const ErrorFeedback feedback("tensor w", h, 32, kernels::serial());
      ADD_FAILURE() << bad;
    } catch (const formats::Error& error) {
      EXPECT_STREQ(error.what(), "tensor w: the inputs on this text are NaN or infinite");
    }
  }
}

TEST(Gptq, LeavesLessErrorThanTheNearestAndThanASearch) {
  Numbers numbers;
  constexpr std::int64_t size = 512, rows = 70;
  const std::vector<float> x = correlated(2000, size, &numbers), w = numbers.list(rows * size);
  const std::vector<double> h = moment_of(x, size);
  std::vector<float> importance;
  for (std::int64_t i = 0; i < size; ++i)
    importance.push_back(static_cast<float>(h[static_cast<std::size_t>(i * (size + 1))]));
  const ErrorFeedback feedback("w", h, size, kernels::serial());
  const ReadRow read = [&](std::int64_t row, float* to) { std::copy_n(w.data() + row * size, size, to); };
  for (const char* name :
       {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_0", "TQ2_0", "Q1_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"}) {
    const formats::GgufType& type = *formats::gguf_type(name);
    const auto blocks = gptq_rows("w", type, rows, read, feedback, kernels::serial());
    const double gptq = error_of(w, opened(type, blocks, rows, size), h, size);
    const double nearest =
        error_of(w, opened(type, formats::gguf_rounded("w", type, w.data(), rows, size), rows, size), h, size);
    const double search =
        error_of(w, opened(type, formats::gguf_rounded("w", type, w.data(), rows, size, importance.data()), rows, size),
                 h, size);
    EXPECT_LT(gptq, 0.8 * nearest) << name;
    EXPECT_LT(gptq, search) << name;
  }
}

}  // namespace
}  // namespace bie::llm
