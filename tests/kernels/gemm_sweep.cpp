#include "gemm_sweep.h"

#include <algorithm>
#include <cmath>

#include "every_kernel.h"
#include "formulas.h"
#include "kernels/check.h"

namespace bie::kernels::test {
namespace {

std::size_t strided(std::int64_t rows, std::int64_t stride, std::int64_t last) {
  return static_cast<std::size_t>(rows == 0 ? 0 : (rows - 1) * stride + last);
}

}  // namespace

const char* name(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32: return "f32";
    case Dtype::bf16: return "bf16";
    case Dtype::f16: return "f16";
    case Dtype::s8: return "s8";
    case Dtype::s4: return "s4";
    case Dtype::bits: return "bits";
    case Dtype::s32: return "s32";
  }
  return "?";
}

std::ostream& operator<<(std::ostream& out, const GemmCase& c) {
  return out << "m " << c.shape.m << ", n " << c.shape.n << ", k " << c.shape.k << ", " << name(c.in) << " to "
             << name(c.out) << (c.with_bias ? ", bias" : "") << ", gaps " << c.x_gap << " and " << c.y_gap;
}

std::int64_t GemmProblem::x_stride() const {
  return row_bytes(c.in, c.shape.k) + (is_float(c.in) ? row_bytes(c.in, c.x_gap) : c.x_gap);
}
std::int64_t GemmProblem::y_stride() const { return row_bytes(c.out, c.shape.n + c.y_gap); }
std::size_t GemmProblem::y_bytes() const { return strided(c.shape.m, y_stride(), y_stride()); }

GemmInput GemmProblem::input() const { return {x.data(), c.in, x_stride(), c.with_bias ? bias.data() : nullptr, step}; }

GemmOutput GemmProblem::output(void* data) const {
  return {data, c.out, y_stride(), scale, c.with_bias ? out_bias.data() : nullptr, out_step};
}

int GemmProblem::activation(std::int64_t row, std::int64_t i) const {
  const unsigned char* data = x.data() + row * x_stride();
  if (!is_float(c.in)) return read_code(data, c.in, i);
  const float value = read_float(data, c.in, i);
  const float xs = c.with_bias ? value + bias[static_cast<std::size_t>(i)] : value;
  if (width.code == Dtype::bits) return sign_bit_of(xs) == 1 ? 1 : -1;
  return quantized(xs, step, width.lo, width.hi);
}

int GemmProblem::weight_at(std::int64_t output, std::int64_t i) const {
  return read_code(weight.data() + output * row_bytes(width.code, c.shape.k), width.code, i);
}

GemmProblem blank_gemm(const GemmWidth& width, const GemmCase& c) {
  GemmProblem p{width, c, {}, {}, {}};
  p.x.resize(strided(c.shape.m, p.x_stride(), row_bytes(c.in, c.shape.k)));
  p.weight.resize(static_cast<std::size_t>(c.shape.n * row_bytes(width.code, c.shape.k)));
  p.bias.resize(static_cast<std::size_t>(c.shape.k));
  p.out_bias.resize(static_cast<std::size_t>(c.shape.n));
  return p;
}

float random_activation(int lo, int hi, float step, Dtype dtype, ReplayableRng& rng) {
  const float sign = rng.coin() ? 1.0f : -1.0f;
  switch (rng.between(0, 9)) {
    case 0:
    case 1: return (static_cast<float>(rng.between(lo - 2, hi + 1)) + 0.5f) * step;
    case 2: return sign * 0.0f;
    case 3: return sign * (dtype == Dtype::f16 ? 0x1p-24f : 1e-40f);
    case 4: return sign * (dtype == Dtype::f16 ? 65504.0f : 3e38f);
    default: return static_cast<float>(rng.between(-1200, 1200)) / 1000.0f * static_cast<float>(-lo) * step;
  }
}

float random_bias(float step, ReplayableRng& rng) {
  switch (rng.between(0, 3)) {
    case 0: return -0.0f;
    case 1: return static_cast<float>(rng.between(-1000, 1000)) / 500.0f * step;
    default: return static_cast<float>(rng.between(-6, 6)) * 0.5f * step;
  }
}

GemmProblem random_gemm(const GemmWidth& width, const GemmCase& c, ReplayableRng& rng) {
  GemmProblem p = blank_gemm(width, c);
  p.step = rng.one_of(step_choices);
  p.scale = rng.one_of(scale_choices);
  p.weight = rng.bytes(static_cast<std::int64_t>(p.weight.size()));
  p.x = rng.bytes(static_cast<std::int64_t>(p.x.size()));
  if (is_float(c.in))
    for (std::int64_t row = 0; row < c.shape.m; ++row)
      for (std::int64_t i = 0; i < c.shape.k; ++i)
        write_float(p.x.data() + row * p.x_stride(), c.in, i, random_activation(width.lo, width.hi, p.step, c.in, rng));
  for (float& b : p.bias) b = random_bias(p.step, rng);
  if (is_code(c.out) && p.scale > 1e30f) p.scale = 1;                // no code of what is infinite
  p.out_step = std::fabs(p.scale) * rng.one_of({1.0f, 2.0f, 0.7f});  // sums of a few products meet both bounds and ties
  for (float& b : p.out_bias) b = random_bias(p.out_step, rng);
  return p;
}

std::vector<std::int32_t> expected_sums(const GemmProblem& p) {
  const auto [m, n, k] = p.c.shape;
  std::vector<signed char> q(static_cast<std::size_t>(m * k)), w(static_cast<std::size_t>(n * k));
  for (std::int64_t i = 0; i < m * k; ++i)
    q[static_cast<std::size_t>(i)] = static_cast<signed char>(p.activation(i / k, i % k));
  for (std::int64_t i = 0; i < n * k; ++i)
    w[static_cast<std::size_t>(i)] = static_cast<signed char>(p.weight_at(i / k, i % k));
  std::vector<std::int32_t> sums(static_cast<std::size_t>(m * n));
  for (std::int64_t row = 0; row < m; ++row)
    for (std::int64_t output = 0; output < n; ++output) {
      std::int32_t sum = 0;
      for (std::int64_t i = 0; i < k; ++i)
        sum += q[static_cast<std::size_t>(row * k + i)] * w[static_cast<std::size_t>(output * k + i)];
      sums[static_cast<std::size_t>(row * n + output)] = sum;
    }
  return sums;
}

std::vector<unsigned char> expected_bytes(const GemmProblem& p, const std::vector<std::int32_t>& sums) {
  const GemmShape& shape = p.c.shape;
  const bool codes = is_code(p.c.out);
  std::vector<unsigned char> expected = GuardedBytes::blank(p.y_bytes());
  for (std::int64_t i = 0; i < shape.m; ++i) {
    unsigned char* const row = expected.data() + i * p.y_stride();
    if (codes) std::fill_n(row, row_bytes(p.c.out, shape.n), static_cast<unsigned char>(0));
    for (std::int64_t o = 0; o < shape.n; ++o) {
      const std::int32_t sum = sums[static_cast<std::size_t>(i * shape.n + o)];
      if (!codes) {
        write_scaled(row, p.c.out, o, sum, p.scale);
        continue;
      }
      const float y = static_cast<float>(sum) * p.scale;
      const float xs = p.c.with_bias ? y + p.out_bias[static_cast<std::size_t>(o)] : y;
      const bool bits = p.c.out == Dtype::bits;
      write_code(row, p.c.out, o, bits ? sign_bit_of(xs) - 1 : quantized(xs, p.out_step, -128, 127));
    }
  }
  return expected;
}

void expect_kernel(const GemmKernel& kernel, const GemmProblem& p, const std::vector<std::int32_t>& sums,
                   const Parallel& parallel) {
  const GemmShape& shape = p.c.shape;
  if (kernel.accepts != nullptr && !kernel.accepts(shape)) return;
  const PackedMemory packed(kernel.packed_bytes(shape.n, shape.k));
  kernel.prepack(p.weight.data(), shape.n, shape.k, packed.get(), parallel);
  const std::vector<unsigned char> expected = expected_bytes(p, sums);
  GuardedBytes y(p.y_bytes());
  const Status status = kernel.run(shape, p.input(), packed.get(), p.output(y.data()), parallel);
  ASSERT_EQ(status, Status::ok) << describe(status) << "; " << p.c;
  ASSERT_TRUE(same_bytes(expected, y)) << p.c << ", step " << p.step << ", scale " << p.scale << ", rows of "
                                       << p.y_stride() << " bytes";
}

void expect_every_kernel(const GemmProblem& problem, const std::vector<std::int32_t>& sums) {
  for_every_kernel(problem.width.table(), [&](const GemmKernel& kernel) { expect_kernel(kernel, problem, sums); });
}

void expect_every_kernel(const GemmProblem& problem) { expect_every_kernel(problem, expected_sums(problem)); }

GemmCase GemmRows::drawn_case(const GemmShape& shape, ReplayableRng& rng) const {
  return {shape,      rng.one_of(inputs()),  rng.one_of(every_output),
          rng.coin(), rng.one_of({0, 1, 5}), rng.one_of({0, 1, 7})};
}

}  // namespace bie::kernels::test
