#include "conv2d_sweep.h"

#include "every_kernel.h"
#include "formulas.h"
#include "gemm_sweep.h"

namespace bie::kernels::test {
namespace {

/// How often a window of `kernel` taps fits when it moves by `stride` over the padded line.
std::int64_t places(std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t pad, std::int64_t dil) {
  std::int64_t count = 0;
  for (std::int64_t first = -pad; first + dil * (kernel - 1) < in + pad; first += stride) ++count;
  return count;
}

std::int64_t index_of(ImageLayout layout, std::int64_t channels, std::int64_t height, std::int64_t width,
                      std::int64_t n, std::int64_t c, std::int64_t y, std::int64_t x) {
  const std::int64_t pixel = y * width + x, plane = height * width;
  return n * channels * plane + (layout == ImageLayout::nchw ? c * plane + pixel : pixel * channels + c);
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Conv2dCase& c) {
  const Conv2dShape& s = c.shape;
  const auto layout = [](ImageLayout l) { return l == ImageLayout::nchw ? " nchw" : " nhwc"; };
  return out << "batch " << s.batch << ", in " << s.in_c << "x" << s.in_h << "x" << s.in_w << ", out " << s.out_c
             << ", kernel " << s.kernel_h << "x" << s.kernel_w << ", stride " << s.stride_h << "x" << s.stride_w
             << ", pad " << s.pad_h << "x" << s.pad_w << ", dilation " << s.dil_h << "x" << s.dil_w << ", groups "
             << s.groups << ", pad code " << s.pad_code << ", " << name(c.in) << layout(c.in_layout) << " to "
             << name(c.out) << layout(c.out_layout) << (c.with_bias ? ", bias" : "");
}

std::int64_t Conv2dProblem::out_h() const {
  const Conv2dShape& s = c.shape;
  return places(s.in_h, s.kernel_h, s.stride_h, s.pad_h, s.dil_h);
}
std::int64_t Conv2dProblem::out_w() const {
  const Conv2dShape& s = c.shape;
  return places(s.in_w, s.kernel_w, s.stride_w, s.pad_w, s.dil_w);
}

std::int64_t Conv2dProblem::x_index(std::int64_t n, std::int64_t channel, std::int64_t y, std::int64_t x_at) const {
  return index_of(c.in_layout, c.shape.in_c, c.shape.in_h, c.shape.in_w, n, channel, y, x_at);
}

int Conv2dProblem::activation(std::int64_t n, std::int64_t channel, std::int64_t y, std::int64_t x_at) const {
  const std::int64_t at = x_index(n, channel, y, x_at);
  if (c.in == Dtype::s8 && width.code != Dtype::bits) return read_code(x.data(), c.in, at);
  const float value = read_float(x.data(), c.in, at);
  const float xs = c.with_bias && c.in != Dtype::s8 ? value + bias[static_cast<std::size_t>(channel)] : value;
  if (width.code == Dtype::bits) return sign_bit_of(xs) == 1 ? 1 : -1;
  return quantized(xs, step, width.lo, width.hi);
}

int Conv2dProblem::weight_at(std::int64_t o, std::int64_t channel, std::int64_t i, std::int64_t j) const {
  const std::int64_t at = (channel * c.shape.kernel_h + i) * c.shape.kernel_w + j;
  return read_code(weight.data() + o * row_bytes(width.code, c.shape.depth()), width.code, at);
}

Conv2dInput Conv2dProblem::input() const {
  return {x.data(), c.in, c.in_layout, c.with_bias ? bias.data() : nullptr, step};
}

Conv2dProblem blank_conv2d(const Conv2dWidth& width, const Conv2dCase& c) {
  Conv2dProblem p{width, c, {}, {}, {}};
  p.c.shape.pad_code = width.pad_code;
  const Conv2dShape& s = p.c.shape;
  p.x.resize(static_cast<std::size_t>(row_bytes(c.in, s.batch * s.in_c * s.in_h * s.in_w)));
  p.weight.resize(static_cast<std::size_t>(s.out_c * row_bytes(width.code, s.depth())));
  p.bias.resize(static_cast<std::size_t>(s.in_c));
  return p;
}

Conv2dProblem random_conv2d(const Conv2dWidth& width, const Conv2dCase& c, ReplayableRng& rng) {
  Conv2dProblem p = blank_conv2d(width, c);
  p.step = rng.one_of(step_choices);
  p.scale = rng.one_of(scale_choices);
  p.weight = rng.bytes(static_cast<std::int64_t>(p.weight.size()));
  const std::int64_t elements = c.shape.batch * c.shape.in_c * c.shape.in_h * c.shape.in_w;
  for (std::int64_t i = 0; i < elements; ++i) {
    if (c.in == Dtype::s8)
      write_code(p.x.data(), c.in, i, static_cast<int>(rng.between(width.lo, width.hi)));
    else
      write_float(p.x.data(), c.in, i, random_activation(width.lo, width.hi, p.step, c.in, rng));
  }
  for (float& b : p.bias) b = random_bias(p.step, rng);
  return p;
}

// Scattered rather than gathered: every activation asks which outputs it reaches. Outputs start as if all were padding,
// and an activation takes the place of the padding there.
std::vector<std::int32_t> expected_sums(const Conv2dProblem& p) {
  const Conv2dShape& s = p.c.shape;
  const std::int64_t out_h = p.out_h(), out_w = p.out_w(), out_plane = out_h * out_w;
  std::vector<std::int32_t> sums(static_cast<std::size_t>(p.out_elements()));
  if (sums.empty()) return sums;
  const std::int64_t group_in = s.in_c / s.groups, group_out = s.out_c / s.groups;
  std::vector<std::int32_t> w(static_cast<std::size_t>(s.depth() * s.out_c));  // [channel of its group][i][j][o]
  std::vector<std::int32_t> all(static_cast<std::size_t>(s.out_c));            // sum of an output's weights
  auto next = w.begin();
  for (std::int64_t channel = 0; channel < group_in; ++channel)
    for (std::int64_t i = 0; i < s.kernel_h; ++i)
      for (std::int64_t j = 0; j < s.kernel_w; ++j)
        for (std::int64_t o = 0; o < s.out_c; ++o)
          all[static_cast<std::size_t>(o)] += * next++ = p.weight_at(o, channel, i, j);
  for (std::size_t at = 0; at < sums.size(); ++at)
    sums[at] = s.pad_code * all[at / static_cast<std::size_t>(out_plane) % all.size()];

  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t channel = 0; channel < s.in_c; ++channel)
      for (std::int64_t y = 0; y < s.in_h; ++y)
        for (std::int64_t x = 0; x < s.in_w; ++x) {
          const std::int32_t q = p.activation(n, channel, y, x) - s.pad_code;
          const std::int64_t first = channel / group_in * group_out;
          for (std::int64_t i = 0; i < s.kernel_h; ++i)
            for (std::int64_t j = 0; j < s.kernel_w; ++j) {
              const std::int64_t top = y + s.pad_h - i * s.dil_h, left = x + s.pad_w - j * s.dil_w;
              if (top < 0 || top % s.stride_h != 0 || top / s.stride_h >= out_h) continue;
              if (left < 0 || left % s.stride_w != 0 || left / s.stride_w >= out_w) continue;
              std::int32_t* sum = sums.data() + n * s.out_c * out_plane + top / s.stride_h * out_w + left / s.stride_w;
              const std::int32_t* tap = w.data() + ((channel % group_in * s.kernel_h + i) * s.kernel_w + j) * s.out_c;
              for (std::int64_t o = first; o < first + group_out; ++o) sum[o * out_plane] += q * tap[o];
            }
        }
  return sums;
}

void expect_kernel(const Conv2dKernel& kernel, const Conv2dProblem& p, const std::vector<std::int32_t>& sums,
                   const Parallel& parallel) {
  const Conv2dShape& s = p.c.shape;
  if (kernel.accepts != nullptr && !kernel.accepts(s)) return;
  const PackedMemory packed(kernel.packed_bytes(s));
  kernel.prepack(p.weight.data(), s, packed.get(), parallel);
  const std::size_t bytes = static_cast<std::size_t>(row_bytes(p.c.out, p.out_elements()));
  std::vector<unsigned char> expected = GuardedBytes::blank(bytes);
  std::size_t at = 0;
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t o = 0; o < s.out_c; ++o)
      for (std::int64_t y = 0; y < p.out_h(); ++y)
        for (std::int64_t x = 0; x < p.out_w(); ++x)
          write_scaled(expected.data(), p.c.out, index_of(p.c.out_layout, s.out_c, p.out_h(), p.out_w(), n, o, y, x),
                       sums[at++], p.scale);
  GuardedBytes out(bytes);
  const Status status =
      kernel.run(s, p.input(), packed.get(), {out.data(), p.c.out, p.c.out_layout, p.scale}, parallel);
  ASSERT_EQ(status, Status::ok) << describe(status) << "; " << p.c;
  ASSERT_TRUE(same_bytes(expected, out)) << p.c << ", step " << p.step << ", scale " << p.scale;
}

void expect_every_kernel(const Conv2dProblem& problem, const std::vector<std::int32_t>& sums) {
  for_every_kernel(problem.width.table(), [&](const Conv2dKernel& kernel) { expect_kernel(kernel, problem, sums); });
}

void expect_every_kernel(const Conv2dProblem& problem) { expect_every_kernel(problem, expected_sums(problem)); }

void Conv2dRows::expect_in_every_layout(const Conv2dShape& shape, ReplayableRng& rng) const {
  Conv2dCase c;
  c.shape = shape;
  c.in = rng.one_of({Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::s8});
  c.out = rng.one_of({Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::s32});
  c.with_bias = rng.coin();
  for (const ImageLayout in : {ImageLayout::nchw, ImageLayout::nhwc}) {
    c.in_layout = in;
    Conv2dProblem p = random_conv2d(GetParam(), c, rng);
    const std::vector<std::int32_t> sums = expected_sums(p);
    for (const ImageLayout out : {ImageLayout::nchw, ImageLayout::nhwc}) {
      p.c.out_layout = out;
      expect_every_kernel(p, sums);
      if (HasFailure()) return;
    }
  }
}

}  // namespace bie::kernels::test
