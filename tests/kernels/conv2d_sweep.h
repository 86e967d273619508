// Convolution problems for all widths: made at random or by hand, solved by the formula, put to every kernel of a
// table.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <vector>

#include "bie/kernels/conv2d.h"
#include "replayable_rng.h"

namespace bie::kernels::test {

struct Conv2dWidth {
  const char* name;
  Dtype code;  ///< of the weights; activation codes are s8 in all widths
  int lo, hi;
  std::int64_t max_k;
  Conv2dTable (*table)();
  int pad_code = 0;
  std::int64_t depthwise_channels = 1032;  ///< at most, in DepthwiseOfWholeBytes
};

struct Conv2dCase {
  Conv2dShape shape;
  Dtype in = Dtype::f32, out = Dtype::s32;
  ImageLayout in_layout = ImageLayout::nchw, out_layout = ImageLayout::nchw;
  bool with_bias = false;
};
std::ostream& operator<<(std::ostream& out, const Conv2dCase& c);

struct Conv2dProblem {
  Conv2dWidth width;
  Conv2dCase c;
  std::vector<unsigned char> x, weight;
  std::vector<float> bias;
  float step = 1, scale = 1;

  std::int64_t out_h() const;
  std::int64_t out_w() const;
  std::int64_t out_elements() const { return c.shape.batch * c.shape.out_c * out_h() * out_w(); }
  std::int64_t x_index(std::int64_t n, std::int64_t channel, std::int64_t y, std::int64_t x_at) const;
  int activation(std::int64_t n, std::int64_t channel, std::int64_t y, std::int64_t x_at) const;
  int weight_at(std::int64_t o, std::int64_t channel, std::int64_t i, std::int64_t j) const;
  Conv2dInput input() const;
};

Conv2dProblem blank_conv2d(const Conv2dWidth& width, const Conv2dCase& c);
Conv2dProblem random_conv2d(const Conv2dWidth& width, const Conv2dCase& c, ReplayableRng& rng);

/// The sums of the formula, [batch][out_c][out_h][out_w] whatever the layouts of the case.
std::vector<std::int32_t> expected_sums(const Conv2dProblem& problem);

void expect_kernel(const Conv2dKernel& kernel, const Conv2dProblem& problem, const std::vector<std::int32_t>& sums,
                   const Parallel& parallel = serial());
void expect_every_kernel(const Conv2dProblem& problem, const std::vector<std::int32_t>& sums);
void expect_every_kernel(const Conv2dProblem& problem);

/// Tests that hold for every width; instantiated in binary_conv2d_test.cpp, int8_conv2d_test.cpp and
/// int4_conv2d_test.cpp. The shapes of the cases get the width's pad_code.
class Conv2dRows : public testing::TestWithParam<Conv2dWidth> {
 protected:
  /// Random dtypes and bias, then all four pairs of layouts on the same data.
  void expect_in_every_layout(const Conv2dShape& shape, ReplayableRng& rng) const;
};
class Conv2dRefusals : public Conv2dRows {};
class Conv2dTails : public Conv2dRows {};

inline std::ostream& operator<<(std::ostream& out, const Conv2dWidth& width) { return out << width.name; }
inline std::string name_of(const testing::TestParamInfo<Conv2dWidth>& info) { return info.param.name; }

}  // namespace bie::kernels::test
