// Every kernel of the convolution tables computes the formula: geometry, channels, groups, layouts, dtypes, weights,
// threads.
#include <limits>
#include <thread>

#include "conv2d_sweep.h"
#include "every_kernel.h"
#include "formulas.h"
#include "gemm_sweep.h"
#include "thread_watch.h"

namespace bie::kernels::test {

TEST_P(Conv2dRows, EveryMixOfChannelCounts) {
  ReplayableRng rng;
  for (const std::int64_t in_c : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 64, 65})
    for (const std::int64_t out_c : {1, 3, 16, 17, 63, 64, 65, 130}) {
      expect_in_every_layout({1, in_c, 3, 4, out_c, 2, 2, 1, 1, 1, 0}, rng);
      if (HasFailure()) return;
    }
}

TEST_P(Conv2dRows, EveryMixOfGroups) {
  ReplayableRng rng;
  for (const std::int64_t groups : {2, 3, 5})
    for (const std::int64_t in_c : {1, 2, 3, 7, 8, 33})
      for (const std::int64_t out_c : {1, 2, 5, 17, 65}) {
        Conv2dShape s = {2, groups * in_c, 3, 5, groups * out_c, 2, 3, 1, 1, 1, 1};
        s.groups = groups;
        expect_in_every_layout(s, rng);
        if (HasFailure()) return;
      }
}

TEST_P(Conv2dRows, ManySmallGroups) {
  ReplayableRng rng;
  for (const std::int64_t in_c : {1, 2, 3, 4, 6, 9})
    for (const std::int64_t out_c : {1, 2, 3, 8, 17}) {
      const std::int64_t groups = in_c * out_c < 9 ? rng.one_of({15, 16, 17, 33}) : 4;
      Conv2dShape s = {1, groups * in_c, 8, 7, groups * out_c, 3, 4};
      s.kernel_w = rng.between(1, 7);
      s.stride_h = rng.between(1, 3), s.stride_w = rng.between(1, 3);
      s.pad_h = rng.between(0, 2), s.pad_w = rng.between(0, 3);
      s.dil_h = rng.between(1, 2), s.dil_w = rng.between(1, 2);
      s.groups = groups;
      expect_in_every_layout(s, rng);
      if (HasFailure()) return;
    }
}

/// Channels that are neighbours and fill bytes, from floats to floats: signs are computed as bits there.
TEST_P(Conv2dRows, DepthwiseOfWholeBytes) {
  ReplayableRng rng;
  for (const std::int64_t channels : {32, 40, 72, 264, 512, 520, 1032})
    for (const std::int64_t kernel : {1, 2, 3, 5, 7})
      for (const bool with_bias : {false, true}) {
        if (channels > GetParam().depthwise_channels) continue;
        Conv2dShape s = {2, channels, rng.between(1, 9), rng.between(1, 21), channels, kernel, rng.between(1, 8)};
        s.stride_h = rng.between(1, 3), s.stride_w = rng.between(1, 3);
        s.pad_h = rng.between(0, 8), s.pad_w = rng.between(0, 8);
        s.dil_h = rng.between(1, 2), s.dil_w = rng.between(1, 3);
        s.groups = channels;
        const Conv2dProblem p = random_conv2d(
            GetParam(), {s, Dtype::f32, Dtype::f32, ImageLayout::nhwc, ImageLayout::nhwc, with_bias}, rng);
        expect_every_kernel(p);
        if (HasFailure()) return;
      }
}

TEST_P(Conv2dRows, RandomGeometry) {
  ReplayableRng rng;
  for (int done = 0; done < 400;) {
    const std::int64_t in_c = rng.one_of({1, 2, 3, 4, 5, 8, 9, 17}), out_c = rng.one_of({1, 3, 16, 17, 65});
    const std::int64_t in_h = rng.between(1, 14), in_w = rng.between(1, 14);
    Conv2dShape s = {rng.between(1, 3), in_c, in_h, in_w, out_c, rng.between(1, 5), rng.between(1, 5)};
    s.stride_h = rng.between(1, 4), s.stride_w = rng.between(1, 4);
    s.pad_h = rng.between(0, 4), s.pad_w = rng.between(0, 4);
    s.dil_h = rng.between(1, 3), s.dil_w = rng.between(1, 3);
    s.groups = rng.one_of({1, 1, 1, 2, 3});
    s.in_c *= s.groups, s.out_c *= s.groups;
    if (s.batch * s.out_h() * s.out_w() * s.out_c * s.depth() > 200000) continue;
    expect_in_every_layout(s, rng);
    if (HasFailure()) return;
    ++done;
  }
}

// {batch, in_c, in_h, in_w, out_c, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w}
TEST_P(Conv2dRows, GeometryAtTheEdges) {
  ReplayableRng rng;
  const Conv2dShape shapes[] = {
      {2, 5, 3, 4, 18, 2, 1, 1, 1, 5, 4},         // windows that lie wholly in the padding
      {1, 3, 2, 2, 17, 5, 5},                     // kernel larger than the image: no output
      {1, 3, 2, 9, 17, 5, 1, 1, 1, 1, 0},         // too tall in one direction only
      {1, 3, 3, 300, 5, 2, 7, 1, 2, 0, 3},        // joined rows of more pixels than share biases
      {1, 16, 2, 150, 66, 2, 3, 1, 1, 1, 1},      // joined rows of many channels
      {2, 19, 7, 9, 18, 1, 1, 2, 3, 1, 2},        // a kernel of 1 that skips lines, behind padding
      {2, 5, 6, 11, 18, 1, 3, 3, 1, 0, 1},        // and rows alone
      {1, 3, 4, 4, 5, 3, 3, 1, 1, 0, 0, 2, 2},    // too large by its dilation
      {1, 3, 2, 2, 17, 5, 5, 1, 1, 2, 2},         // larger than the image but for the padding
      {0, 3, 4, 4, 5, 3, 3},                      // no image
      {2, 0, 4, 4, 5, 3, 3, 1, 1, 1, 1},          // no channel: zeros
      {2, 3, 4, 4, 0, 3, 3},                      // no output channel
      {2, 3, 0, 4, 5, 3, 3, 1, 1, 2, 2},          // no line, yet outputs
      {2, 3, 4, 0, 5, 1, 1},                      // no column, no outputs
      {1, 1, 1, 1, 1, 1, 1},                      //
      {2, 4, 9, 9, 33, 1, 1, 3, 4},               // stride beyond the kernel
      {3, 6, 5, 7, 16, 3, 3, 1, 1, 1, 1},         // planes of 35 pixels: no multiple of any tile
      {2, 9, 17, 15, 20, 3, 2, 1, 2, 0, 1},       // planes beyond one run of quantised pixels
      {1, 2, 40, 3, 5, 7, 1, 1, 1, 3, 0, 3, 1},   // tall image, tall kernel
      {1, 2, 3, 130, 5, 1, 7, 1, 2, 0, 9, 1, 4},  // wide image, wide kernel
      {1, 129, 2, 2, 3, 2, 2},                    // deep
      {5, 3, 1, 1, 70, 1, 1, 1, 1, 0, 0, 9, 9},   // dilation without a second tap
  };
  for (const Conv2dShape& shape : shapes) {
    expect_in_every_layout(shape, rng);
    if (HasFailure()) return;
  }
}

/// Planes to planes, where outputs fill vectors less well than pixels: every other pixel, joined rows, rows longer than
/// what is quantised at once.
TEST_P(Conv2dRows, PlanesToPlanes) {
  ReplayableRng rng;
  const Conv2dShape shapes[] = {
      {2, 7, 9, 71, 19, 1, 1, 2, 2},               // every other pixel of every other row
      {1, 6, 6, 35, 17, 1, 1, 1, 2},               // of every row
      {1, 5, 7, 40, 17, 1, 1, 3, 2},               // of every third one
      {1, 9, 5, 40, 17, 1, 1, 1, 3},               // every third pixel
      {2, 9, 6, 5, 17, 1, 1},                      // rows shorter than a vector
      {1, 3, 21, 75, 17, 7, 7, 2, 2, 3, 3},        // joined rows of two phases
      {2, 3, 19, 70, 33, 5, 4, 3, 3, 2, 1, 2, 2},  // of three, with gaps between their taps
      {1, 1, 9, 140, 5, 3, 3, 1, 1, 1, 1},         // of one channel and one phase
      {2, 19, 12, 17, 33, 3, 3, 1, 1, 1, 1},       // padding around rows
      {1, 10, 11, 9, 37, 2, 3, 2, 2, 1, 2, 1, 2},  // windows that move by two
      {1, 65, 13, 20, 65, 1, 1},
      {1, 300, 4, 8, 17, 1, 1},
  };
  for (const Conv2dShape& shape : shapes)
    for (const Dtype in : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::s8})
      for (const Dtype out : {Dtype::f32, Dtype::f16}) {
        expect_every_kernel(
            random_conv2d(GetParam(), {shape, in, out, ImageLayout::nchw, ImageLayout::nchw, rng.coin()}, rng));
        if (HasFailure()) return;
      }
}

TEST_P(Conv2dRows, EveryMixOfDtypesLayoutsAndBias) {
  ReplayableRng rng;
  for (const Dtype in : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::s8})
    for (const Dtype out : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::s32})
      for (const ImageLayout in_layout : {ImageLayout::nchw, ImageLayout::nhwc})
        for (const ImageLayout out_layout : {ImageLayout::nchw, ImageLayout::nhwc})
          for (const bool with_bias : {false, true}) {
            const Conv2dShape shape = {2, 7, 5, 6, 19, 3, 2, 1, 2, 1, 1};
            expect_every_kernel(random_conv2d(GetParam(), {shape, in, out, in_layout, out_layout, with_bias}, rng));
            if (HasFailure()) return;
          }
}

// The kernel covers the image once, so a single weight meets a single activation; image d holds digit d of the
// activation's number, so a weight that lands in another place, or in two, shows.
TEST_P(Conv2dRows, OneWeightFeedsOneOutputFromOnePlace) {
  const bool signs = GetParam().code == Dtype::bits;  // which have fewer digits, and no weight 0
  const std::int64_t images = signs ? 6 : 3;
  const int blank = signs ? -1 : 0, fed = signs ? 1 : -5;
  const Conv2dShape s = {images, 9, 2, 3, 67, 2, 3};
  for (const ImageLayout layout : {ImageLayout::nchw, ImageLayout::nhwc}) {
    Conv2dProblem p = blank_conv2d(GetParam(), {s, Dtype::s8, Dtype::s32, layout, layout});
    const auto digit = [signs](std::int64_t n, std::int64_t at) {
      if (signs) return (at >> n & 1) != 0 ? 1 : -1;
      return static_cast<int>(1 + (n == 0 ? at : n == 1 ? at / 7 : at / 49) % 7);
    };
    std::vector<std::int32_t> unfed(static_cast<std::size_t>(images * s.out_c));
    for (std::int64_t n = 0; n < images; ++n)
      for (std::int64_t at = 0; at < s.depth(); ++at) {
        write_code(p.x.data(), Dtype::s8, p.x_index(n, at / 6, at % 6 / 3, at % 3), digit(n, at));
        for (std::int64_t o = 0; o < s.out_c; ++o)
          unfed[static_cast<std::size_t>(n * s.out_c + o)] += blank * digit(n, at);
      }
    for (std::int64_t o = 0; o < s.out_c; ++o)
      for (std::int64_t at = o % 3; at < s.depth(); at += 1 + o % 3) {
        unsigned char* weight_row = p.weight.data() + o * row_bytes(p.width.code, s.depth());
        write_code(weight_row, p.width.code, at, fed);
        std::vector<std::int32_t> sums = unfed;
        for (std::int64_t n = 0; n < images; ++n)
          sums[static_cast<std::size_t>(n * s.out_c + o)] += (fed - blank) * digit(n, at);
        expect_every_kernel(p, sums);
        if (HasFailure()) {
          ADD_FAILURE() << "the weight of output " << o << ", element " << at;
          return;
        }
        write_code(weight_row, p.width.code, at, blank);
      }
  }
}

TEST_P(Conv2dRows, BiasAndStepAreIgnoredForCodes) {
  ReplayableRng rng;
  Conv2dProblem p = random_conv2d(GetParam(), {{1, 6, 4, 5, 18, 3, 3, 1, 1, 1, 1}, Dtype::s8}, rng);
  const std::vector<std::int32_t> sums = expected_sums(p);
  p.c.with_bias = true;
  p.bias.assign(p.bias.size(), std::numeric_limits<float>::quiet_NaN());
  for (const float step : {0.0f, -1.0f, std::numeric_limits<float>::infinity()}) {
    p.step = step;
    for (const ImageLayout layout : {ImageLayout::nchw, ImageLayout::nhwc}) {
      if (layout == ImageLayout::nhwc && p.c.in_layout == ImageLayout::nchw) {
        const Conv2dProblem from = p;
        p.c.in_layout = layout;
        for (std::int64_t c = 0; c < 6; ++c)
          for (std::int64_t y = 0; y < 4; ++y)
            for (std::int64_t x = 0; x < 5; ++x)
              write_code(p.x.data(), Dtype::s8, p.x_index(0, c, y, x), from.activation(0, c, y, x));
      }
      expect_every_kernel(p, sums);
    }
  }
}

// The bias of a channel must not leak into the padding.
TEST_P(Conv2dRows, PaddingIsItsCodeWhateverTheBias) {
  const bool signs = GetParam().code == Dtype::bits;
  const int inside = signs ? 1 : 3, weight = GetParam().code == Dtype::s8 ? 0x11 : 1;
  for (const ImageLayout layout : {ImageLayout::nchw, ImageLayout::nhwc}) {
    Conv2dProblem p = blank_conv2d(
        GetParam(), {{1, 5, 1, 1, 17, 3, 3, 1, 1, 1, 1}, Dtype::f32, Dtype::s32, layout, ImageLayout::nchw, true});
    p.bias.assign(p.bias.size(), 3.0f);
    p.weight.assign(p.weight.size(), signs ? 0xff : 0x11);
    expect_every_kernel(p, std::vector<std::int32_t>(17, 5 * weight * (inside + 8 * GetParam().pad_code)));
  }
}

TEST_P(Conv2dRows, PaddingThatNoMemoryHolds) {
  ReplayableRng rng;
  constexpr std::int64_t huge = std::numeric_limits<std::int32_t>::max();
  for (const ImageLayout layout : {ImageLayout::nchw, ImageLayout::nhwc}) {
    const Conv2dShape s = {1, 3, 1, 1, 2, 1, 1, huge, huge, huge, huge};
    const Conv2dProblem p = random_conv2d(GetParam(), {s, Dtype::f32, Dtype::s32, layout, layout}, rng);
    ASSERT_EQ(p.out_elements(), 2 * 9);
    for (const Conv2dKernel& kernel : GetParam().table()) {
      if (!host().isas.has(kernel.isa)) continue;
      const PackedMemory packed(kernel.packed_bytes(p.c.shape));
      kernel.prepack(p.weight.data(), p.c.shape, packed.get(), serial());
      std::vector<std::int32_t> y(18);
      const Status status =
          kernel.run(p.c.shape, p.input(), packed.get(), {y.data(), Dtype::s32, layout, p.scale}, serial());
      if (status == Status::ok)
        expect_kernel(kernel, p, expected_sums(p));
      else
        EXPECT_EQ(status, Status::out_of_memory) << kernel.name;
    }
  }
}

TEST_P(Conv2dRows, EmptySizesOnAFreshThread) {
  ReplayableRng rng;
  const Conv2dShape shapes[] = {
      {0, 3, 4, 4, 5, 3, 3}, {2, 0, 4, 4, 5, 3, 3}, {2, 3, 4, 4, 0, 3, 3}, {2, 3, 0, 0, 5, 3, 3, 1, 1, 2, 2}};
  for (const Conv2dShape& shape : shapes)
    for (const ImageLayout layout : {ImageLayout::nchw, ImageLayout::nhwc}) {
      const Conv2dProblem p = random_conv2d(GetParam(), {shape, Dtype::f32, Dtype::f32, layout, layout}, rng);
      std::thread([&p] { expect_every_kernel(p); }).join();
    }
}

TEST_P(Conv2dRows, ThreadsDoNotShowInTheResult) {
  ReplayableRng rng;
  Conv2dShape depthwise = {1, 20, 24, 40, 20, 3, 5, 1, 1, 2, 2};
  depthwise.groups = 20;
  Conv2dShape whole_bytes = {2, 48, 14, 23, 48, 5, 3, 1, 1, 2, 1};
  whole_bytes.groups = 48;
  for (const Conv2dShape& shape : {Conv2dShape{2, 33, 21, 19, 130, 3, 3, 1, 1, 1, 1}, depthwise, whole_bytes})
    for (const ImageLayout layout : {ImageLayout::nchw, ImageLayout::nhwc}) {
      const Conv2dProblem p = random_conv2d(GetParam(), {shape, Dtype::f32, Dtype::f32, layout, layout, true}, rng);
      const std::vector<std::int32_t> sums = expected_sums(p);
      for (const int threads : {1, 2, 3}) {
        ThreadPool pool(threads);
        for_every_kernel(GetParam().table(), [&](const Conv2dKernel& kernel) {
          if (kernel.isa != Isa::reference) expect_kernel(kernel, p, sums, pool.parallel());
        });
        if (HasFailure()) return;
      }
    }
}

TEST_P(Conv2dRows, ABigProblemUsesBothThreads) {
  ReplayableRng rng;
  const Conv2dProblem p = random_conv2d(GetParam(), {{1, 64, 28, 28, 128, 3, 3, 1, 1, 1, 1}}, rng);
  const std::vector<std::int32_t> sums = expected_sums(p);
  for_every_kernel(GetParam().table(), [&](const Conv2dKernel& kernel) {
    if (kernel.isa == Isa::reference) return;  // it runs where it is called
    ThreadPool pool(2);
    ThreadWatch watch(pool.parallel());
    expect_kernel(kernel, p, sums, watch.parallel());
    EXPECT_EQ(watch.threads_of_loops(), std::vector<std::size_t>(3, 2)) << "loops: weights, activations, products";
  });
}

}  // namespace bie::kernels::test
