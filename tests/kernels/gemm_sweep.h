// GEMM problems for the three widths: made at random or by hand, solved by the formula, put to every kernel of a table.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <vector>

#include "bie/kernels/gemm.h"
#include "replayable_rng.h"

namespace bie::kernels::test {

struct GemmWidth {
  const char* name;
  Dtype code;
  int lo, hi;  ///< range of the codes
  std::int64_t max_k;
  GemmTable (*table)();
};

struct GemmCase {
  GemmShape shape;
  Dtype in = Dtype::f32, out = Dtype::s32;
  bool with_bias = false;
  std::int64_t x_gap = 0, y_gap = 0;  ///< elements (bytes for packed codes) between the end of a row and the next
};
std::ostream& operator<<(std::ostream& out, const GemmCase& c);
const char* name(Dtype dtype);

struct GemmProblem {
  GemmWidth width;
  GemmCase c;
  std::vector<unsigned char> x, weight;
  std::vector<float> bias;
  float step = 1, scale = 1;
  std::vector<float> out_bias = {};  ///< of a result that is codes
  float out_step = 1;

  std::int64_t x_stride() const;
  std::int64_t y_stride() const;
  std::size_t y_bytes() const;
  GemmInput input() const;
  GemmOutput output(void* data) const;
  int activation(std::int64_t row, std::int64_t i) const;
  int weight_at(std::int64_t output, std::int64_t i) const;
};

/// Zero bytes everywhere, sized for the case.
GemmProblem blank_gemm(const GemmWidth& width, const GemmCase& c);

/// Activations of every kind (inside and outside the range, ties, signed zeros, denormals, huge), random weights and
/// pad bits, a random step and scale.
GemmProblem random_gemm(const GemmWidth& width, const GemmCase& c, ReplayableRng& rng);

/// One activation of random kind.
float random_activation(int lo, int hi, float step, Dtype dtype, ReplayableRng& rng);

/// A bias that moves values onto ties, onto zero and between them.
float random_bias(float step, ReplayableRng& rng);

inline constexpr float step_choices[] = {1.0f, 0.5f, 0.0625f, 0.07f, 0.3f, 3e-5f};
inline constexpr float scale_choices[] = {1.0f, 0.0123f, -0.5f, 1e-6f, 3e-9f, 700.0f, 1e34f};

/// The sums of the formula, [m][n].
std::vector<std::int32_t> expected_sums(const GemmProblem& problem);

/// Expected memory of the output after a call, with guard bytes between its rows.
std::vector<unsigned char> expected_bytes(const GemmProblem& problem, const std::vector<std::int32_t>& sums);

/// Prepacks and runs one row; everything but the output elements must stay as it was.
void expect_kernel(const GemmKernel& kernel, const GemmProblem& problem, const std::vector<std::int32_t>& sums,
                   const Parallel& parallel = serial());

void expect_every_kernel(const GemmProblem& problem, const std::vector<std::int32_t>& sums);

/// The formula is the judge.
void expect_every_kernel(const GemmProblem& problem);

/// Tests that hold for every width; instantiated in binary_gemm_test.cpp, int8_gemm_test.cpp and int4_gemm_test.cpp.
class GemmRows : public testing::TestWithParam<GemmWidth> {
 protected:
  /// f32, bf16, f16 and the width's own codes.
  std::vector<Dtype> inputs() const { return {Dtype::f32, Dtype::bf16, Dtype::f16, GetParam().code}; }
  /// A case whose dtypes, bias and gaps are drawn.
  GemmCase drawn_case(const GemmShape& shape, ReplayableRng& rng) const;
};
/// Numbers, sums and codes.
inline constexpr Dtype every_output[] = {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::s32, Dtype::bits, Dtype::s8};
class GemmRefusals : public GemmRows {};

inline std::ostream& operator<<(std::ostream& out, const GemmWidth& width) { return out << width.name; }
inline std::string name_of(const testing::TestParamInfo<GemmWidth>& info) { return info.param.name; }

}  // namespace bie::kernels::test
