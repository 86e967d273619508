// Refusals of the convolution kernels: all kernels refuse the same calls, and a refusal leaves the output unchanged.
#include <functional>
#include <limits>
#include <string>

#include "conv2d_sweep.h"
#include "every_kernel.h"
#include "formulas.h"
#include "gemm_sweep.h"

namespace bie::kernels::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
const float nan = std::numeric_limits<float>::quiet_NaN();
const Conv2dShape small_shape = {2, 3, 6, 5, 4, 3, 2, 2, 1, 1, 0};

struct Call {
  Conv2dShape shape;
  Conv2dInput x;
  Conv2dOutput y;
};

struct Refusal {
  std::string what;
  Status status;
  std::function<void(Call&)> spoil;
};

std::vector<Refusal> refusals(const Conv2dWidth& width) {
  std::vector<Refusal> all = {
      {"in_c too large", Status::too_deep, [k = width.max_k / 6 + 1](Call& c) { c.shape.in_c = k; }},
      {"kernel too large", Status::too_deep, [k = width.max_k / 6 + 1](Call& c) { c.shape.kernel_h = k; }},
  };
  struct Size {
    const char* what;
    std::int64_t Conv2dShape::*member;
    std::int64_t least;
  };
  const Size sizes[] = {
      {"batch", &Conv2dShape::batch, 0},       {"in_c", &Conv2dShape::in_c, 0},
      {"in_h", &Conv2dShape::in_h, 0},         {"in_w", &Conv2dShape::in_w, 0},
      {"out_c", &Conv2dShape::out_c, 0},       {"pad_h", &Conv2dShape::pad_h, 0},
      {"pad_w", &Conv2dShape::pad_w, 0},       {"kernel_h", &Conv2dShape::kernel_h, 1},
      {"kernel_w", &Conv2dShape::kernel_w, 1}, {"stride_h", &Conv2dShape::stride_h, 1},
      {"stride_w", &Conv2dShape::stride_w, 1}, {"dil_h", &Conv2dShape::dil_h, 1},
      {"dil_w", &Conv2dShape::dil_w, 1},
  };
  for (const Size& size : sizes)
    all.push_back({std::string(size.what) + " too small", Status::bad_shape,
                   [size](Call& c) { c.shape.*size.member = size.least - 1; }});
  for (const Dtype code : {Dtype::bits, Dtype::s4, Dtype::s32})
    all.push_back({std::string("x is ") + name(code), Status::bad_dtype, [code](Call& c) { c.x.dtype = code; }});
  for (const Dtype code : {Dtype::bits, Dtype::s4, Dtype::s8})
    all.push_back({std::string("y is ") + name(code), Status::bad_dtype, [code](Call& c) { c.y.dtype = code; }});
  all.push_back({"no groups", Status::bad_shape, [](Call& c) { c.shape.groups = 0; }});
  all.push_back({"groups that do not divide in_c", Status::bad_shape, [](Call& c) { c.shape.groups = 1 << 30; }});
  all.push_back({"groups that do not divide out_c", Status::bad_shape, [](Call& c) { c.shape.groups = 3; }});
  for (const int pad_code : {-2, -1, 1})
    if (width.code != Dtype::bits || pad_code != -1)
      all.push_back({"pad code " + std::to_string(pad_code), Status::bad_shape,
                     [pad_code](Call& c) { c.shape.pad_code = pad_code; }});
  if (width.code == Dtype::bits) return all;  // signs have no step
  for (const float step : {0.0f, -0.0f, -1.0f, infinity, -infinity, nan})
    all.push_back({"step " + std::to_string(step), Status::bad_scale, [step](Call& c) { c.x.step = step; }});
  return all;
}

}  // namespace

TEST_P(Conv2dRefusals, WrongArguments) {
  ReplayableRng rng;
  const Conv2dProblem p = random_conv2d(GetParam(), {small_shape, Dtype::f32, Dtype::f32}, rng);
  for_every_kernel(GetParam().table(), [&](const Conv2dKernel& kernel) {
    for (const Refusal& refusal : refusals(GetParam())) {
      GuardedBytes y(static_cast<std::size_t>(4 * p.out_elements()));
      Call call = {p.c.shape, p.input(), {y.data(), p.c.out, p.c.out_layout, p.scale}};
      refusal.spoil(call);
      EXPECT_EQ(kernel.run(call.shape, call.x, nullptr, call.y, serial()), refusal.status) << refusal.what;
      EXPECT_TRUE(y.untouched()) << refusal.what;
    }
  });
}

TEST_P(Conv2dRefusals, EveryKernelNamesTheSameOfTwoFaults) {
  ReplayableRng rng;
  const Conv2dProblem p = random_conv2d(GetParam(), {small_shape, Dtype::f32, Dtype::f32}, rng);
  const std::vector<Refusal> all = refusals(GetParam());
  for (const Refusal& first : all)
    for (const Refusal& second : all) {
      Call call = {p.c.shape, p.input(), {nullptr, p.c.out, p.c.out_layout, p.scale}};
      first.spoil(call);
      second.spoil(call);
      const Status expected = GetParam().table().back().run(call.shape, call.x, nullptr, call.y, serial());
      EXPECT_NE(expected, Status::ok) << first.what << " and " << second.what;
      for_every_kernel(GetParam().table(), [&](const Conv2dKernel& kernel) {
        EXPECT_EQ(kernel.run(call.shape, call.x, nullptr, call.y, serial()), expected)
            << first.what << " and " << second.what;
      });
    }
}

/// Whether element i of the image lies in a row and a column that are not skipped.
bool looked_at(const Conv2dShape& s, ImageLayout layout, std::int64_t i) {
  const std::int64_t pixel = layout == ImageLayout::nhwc ? i / s.in_c : i, y = pixel / s.in_w % s.in_h;
  const auto is_read = [](std::int64_t at, std::int64_t kernel, std::int64_t stride, std::int64_t pad) {
    return kernel > 1 || (at + pad) % stride == 0;
  };
  return is_read(y, s.kernel_h, s.stride_h, s.pad_h) && is_read(pixel % s.in_w, s.kernel_w, s.stride_w, s.pad_w);
}

// Every element, also those behind the last window; but nobody looks at lines that a stride skips with a kernel of 1.
TEST_P(Conv2dRefusals, NanAndInfinityAnywhereInTheImage) {
  ReplayableRng rng;
  Conv2dShape depthwise = {1, 20, 5, 4, 20, 1, 3, 2, 3};
  depthwise.groups = 20;
  const Conv2dShape shapes[] = {{2, 3, 5, 7, 4, 3, 3, 1, 1, 1, 1},  {1, 19, 3, 3, 2, 1, 1, 2, 2},
                                {1, 2, 6, 4, 3, 2, 2, 3, 3},        {1, 3, 5, 7, 4, 1, 3, 2, 2, 1, 0},
                                {1, 17, 4, 7, 2, 2, 1, 1, 3, 0, 1}, depthwise};
  for (const Conv2dShape& shape : shapes)
    for (const Dtype in : {Dtype::f32, Dtype::bf16, Dtype::f16})
      for (const ImageLayout layout : {ImageLayout::nchw, ImageLayout::nhwc}) {
        Conv2dProblem p = random_conv2d(GetParam(), {shape, in, Dtype::s32, layout, layout, rng.coin()}, rng);
        for_every_kernel(GetParam().table(), [&](const Conv2dKernel& kernel) {
          const PackedMemory packed(kernel.packed_bytes(shape));
          kernel.prepack(p.weight.data(), shape, packed.get(), serial());
          GuardedBytes y(static_cast<std::size_t>(4 * p.out_elements()));
          const auto run = [&] {
            return kernel.run(shape, p.input(), packed.get(), {y.data(), p.c.out, layout, p.scale}, serial());
          };
          ASSERT_EQ(run(), Status::ok);
          const std::int64_t elements = shape.batch * shape.in_c * shape.in_h * shape.in_w;
          for (std::int64_t i = 0; i < elements; ++i)
            for (const float value : {nan, infinity, -infinity}) {
              const float kept = read_float(p.x.data(), in, i);
              write_float(p.x.data(), in, i, value);
              ASSERT_EQ(run(), looked_at(shape, layout, i) ? Status::not_finite : Status::ok)
                  << value << " at element " << i << "; " << p.c;
              write_float(p.x.data(), in, i, kept);
            }
        });
        if (HasFailure()) return;
      }
}

/// Signs of such an image become bits without a pass of bytes.
TEST_P(Conv2dRefusals, NanAndInfinityAnywhereInADepthwiseImage) {
  ReplayableRng rng;
  for (const std::int64_t channels : {32, 72})
    for (const std::int64_t stride : {1, 2})
      for (const bool with_bias : {false, true}) {
        Conv2dShape shape = {1, channels, 2, 3, channels, 3, 3, stride, stride, 1, 1};
        shape.groups = channels;
        Conv2dProblem p = random_conv2d(
            GetParam(), {shape, Dtype::f32, Dtype::f32, ImageLayout::nhwc, ImageLayout::nhwc, with_bias}, rng);
        for_every_kernel(GetParam().table(), [&](const Conv2dKernel& kernel) {
          const PackedMemory packed(kernel.packed_bytes(p.c.shape));
          kernel.prepack(p.weight.data(), p.c.shape, packed.get(), serial());
          GuardedBytes y(static_cast<std::size_t>(4 * p.out_elements()));
          for (std::int64_t i = 0; i < 6 * channels; ++i) {
            const float kept = read_float(p.x.data(), Dtype::f32, i);
            write_float(p.x.data(), Dtype::f32, i, i % 2 == 0 ? nan : infinity);
            ASSERT_EQ(
                kernel.run(p.c.shape, p.input(), packed.get(), {y.data(), p.c.out, p.c.out_layout, p.scale}, serial()),
                Status::not_finite)
                << "element " << i << "; " << p.c;
            write_float(p.x.data(), Dtype::f32, i, kept);
          }
        });
        if (HasFailure()) return;
      }
}

TEST_P(Conv2dRefusals, NanAndInfinityAnywhereInTheBias) {
  ReplayableRng rng;
  const Conv2dShape shape = {1, 19, 3, 4, 5, 2, 2};
  for (const ImageLayout layout : {ImageLayout::nchw, ImageLayout::nhwc}) {
    Conv2dProblem p = random_conv2d(GetParam(), {shape, Dtype::f32, Dtype::s32, layout, layout, true}, rng);
    for_every_kernel(GetParam().table(), [&](const Conv2dKernel& kernel) {
      const PackedMemory packed(kernel.packed_bytes(shape));
      kernel.prepack(p.weight.data(), shape, packed.get(), serial());
      GuardedBytes y(static_cast<std::size_t>(4 * p.out_elements()));
      for (float& b : p.bias)
        for (const float value : {nan, infinity, -infinity}) {
          const float kept = b;
          b = value;
          EXPECT_EQ(kernel.run(shape, p.input(), packed.get(), {y.data(), p.c.out, layout, 1}, serial()),
                    Status::not_finite)
              << value << " in the bias at " << &b - p.bias.data();
          b = kept;
        }
    });
  }
}

TEST_P(Conv2dRefusals, NobodyLooksAtAnImageWithoutOutputs) {
  for (const Conv2dShape& shape : {Conv2dShape{1, 3, 4, 4, 0, 3, 3}, Conv2dShape{1, 3, 4, 4, 2, 5, 5}}) {
    Conv2dProblem p = blank_conv2d(GetParam(), {shape});
    write_float(p.x.data(), Dtype::f32, 0, nan);
    expect_every_kernel(p, {});
  }
}

// The header's arithmetic for the size of the output against counting the places of the window.
TEST_P(Conv2dRefusals, OutputSizeIsTheNumberOfPlacesOfTheWindow) {
  for (std::int64_t in = 0; in < 9; ++in)
    for (std::int64_t kernel = 1; kernel < 5; ++kernel)
      for (std::int64_t stride = 1; stride < 4; ++stride)
        for (std::int64_t pad = 0; pad < 4; ++pad)
          for (std::int64_t dil = 1; dil < 4; ++dil) {
            const Conv2dShape tall = {1, 1, in, 1, 1, kernel, 1, stride, 1, pad, 0, dil, 1};
            const Conv2dShape wide = {1, 1, 1, in, 1, 1, kernel, 1, stride, 0, pad, 1, dil};
            const Conv2dProblem p = blank_conv2d(GetParam(), {tall}), q = blank_conv2d(GetParam(), {wide});
            ASSERT_EQ(tall.out_h(), p.out_h()) << p.c;
            ASSERT_EQ(wide.out_w(), q.out_w()) << q.c;
          }
}

}  // namespace bie::kernels::test
