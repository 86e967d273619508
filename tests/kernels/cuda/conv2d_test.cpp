// Every kernel of the CUDA convolution tables computes the formula, in both layouts.
#include "bie/kernels/cuda/conv2d.h"

#include <cmath>
#include <limits>

#include "bie/kernels/binary_conv2d.h"
#include "bie/kernels/int4_conv2d.h"
#include "bie/kernels/int8_conv2d.h"
#include "tests/kernels/conv2d_sweep.h"
#include "tests/kernels/cuda/device_memory.h"
#include "tests/kernels/formulas.h"

namespace bie::kernels::test {
namespace {

struct CudaWidth {
  Conv2dWidth host;
  cuda::Conv2dTable (*table)();
  bool grouped = false;
};
const CudaWidth widths[] = {
    {{"b1xb1", Dtype::bits, -1, 1, max_k_b1, b1xb1_conv2d_table, -1}, cuda::b1xb1_conv2d_table},
    {{"s8xs8", Dtype::s8, -128, 127, max_k_s8, s8xs8_conv2d_table}, cuda::s8xs8_conv2d_table},
    {{"s4xs4", Dtype::s4, -8, 7, max_k_s4, s4xs4_conv2d_table}, cuda::s4xs4_conv2d_table},
    {{"b1xb1_grouped", Dtype::bits, -1, 1, max_k_b1, b1xb1_conv2d_table, -1}, cuda::b1xb1_grouped_conv2d_table, true},
    {{"b1xb1_grouped_padded_with_zero", Dtype::bits, -1, 1, max_k_b1, b1xb1_conv2d_table, 0},
     cuda::b1xb1_grouped_conv2d_table,
     true},
    {{"s8xs8_grouped", Dtype::s8, -128, 127, max_k_s8, s8xs8_conv2d_table}, cuda::s8xs8_grouped_conv2d_table, true},
    {{"s4xs4_grouped", Dtype::s4, -8, 7, max_k_s4, s4xs4_conv2d_table}, cuda::s4xs4_grouped_conv2d_table, true},
};

std::vector<unsigned char> expected_bytes(const Conv2dProblem& p, const std::vector<std::int32_t>& sums) {
  const Conv2dShape& s = p.c.shape;
  const std::int64_t plane = p.out_h() * p.out_w();
  std::vector<unsigned char> expected =
      GuardedBytes::blank(static_cast<std::size_t>(row_bytes(p.c.out, p.out_elements())));
  for (std::int64_t i = 0; i < p.out_elements(); ++i) {
    const std::int64_t n = i / (s.out_c * plane), o = i / plane % s.out_c, pixel = i % plane;
    const std::int64_t at = p.c.out_layout == ImageLayout::nchw ? i : (n * plane + pixel) * s.out_c + o;
    write_scaled(expected.data(), p.c.out, at, sums[static_cast<std::size_t>(i)], p.scale);
  }
  return expected;
}

/// Whether the kernel computes the shape on this GPU, be it by emulation.
bool computes(const cuda::Conv2dKernel& kernel, const Conv2dShape& shape) {
  return kernel.min_sm <= this_gpu().sm && (kernel.accepts == nullptr || kernel.accepts(shape));
}

/// `chosen` < 0: every kernel.
void expect_kernels(const CudaWidth& width, const Conv2dProblem& p, const std::vector<std::int32_t>& sums,
                    int chosen = -1) {
  const Conv2dShape& s = p.c.shape;
  const cuda::Conv2dTable table = width.table();
  const DeviceBytes x(p.x), weight(p.weight), bias(p.bias);
  const DeviceBytes scales(std::vector<float>{p.step, p.scale});
  int flag_count = 0;
  const DeviceBytes panels(static_cast<std::size_t>(s.out_c * table.panel_row(s)));
  const DeviceBytes workspace(static_cast<std::size_t>(table.workspace(s)));
  ASSERT_EQ(table.prepack({weight.get(), width.host.code, {}, 1}, s, panels.get(), nullptr, &flag_count, default_queue),
            Status::ok);
  const std::vector<unsigned char> expected = expected_bytes(p, sums);
  for (int i = 0; i < table.count; ++i) {
    const cuda::Conv2dKernel& kernel = table.best_first[i];
    if ((chosen >= 0 && i != chosen) || !computes(kernel, s)) continue;
    SCOPED_TRACE(kernel.name);
    const cuda::Image image = {
        x.get(), p.c.in, p.c.in_layout, p.c.with_bias ? bias.as<float>() : nullptr, {scales.as<float>(), 0}, 1e-30f};
    GuardedBytes y(expected.size());
    bool takes = true;
    run_guarded(&y, expected.size(), [&](void* data) {
      const cuda::Conv2dOutput out = {data, p.c.out, p.c.out_layout, {scales.as<float>() + 1, 0}, {nullptr, 1}};
      takes = kernel.takes == nullptr || kernel.takes(image, out);
      const Status status = kernel.run(s, image, {panels.get()}, out, workspace.get(), default_queue);
      if (takes)
        ASSERT_EQ(status, Status::ok) << describe(status) << "; " << p.c;
      else
        ASSERT_EQ(status, Status::bad_dtype) << describe(status) << "; " << p.c;
    });
    if (!takes) continue;
    ASSERT_TRUE(same_bytes(expected, y)) << p.c << ", step " << p.step << ", scale " << p.scale;
  }
}

class CudaConv2d : public testing::TestWithParam<CudaWidth> {
 protected:
  Conv2dCase drawn_case(const Conv2dShape& shape, ReplayableRng& rng) const {
    Conv2dCase c;
    c.shape = shape;
    c.in = rng.one_of({Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::s8});
    c.out = rng.one_of({Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::s32});
    c.with_bias = rng.coin();
    c.in_layout = rng.coin() ? ImageLayout::nchw : ImageLayout::nhwc;
    c.out_layout = rng.coin() ? ImageLayout::nchw : ImageLayout::nhwc;
    return c;
  }
  void expect_drawn(const Conv2dShape& shape, ReplayableRng& rng, int chosen = -1) const {
    const Conv2dProblem p = random_conv2d(GetParam().host, drawn_case(shape, rng), rng);
    expect_kernels(GetParam(), p, expected_sums(p), chosen);
  }
};

TEST_P(CudaConv2d, EveryMixOfChannelCounts) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  for (const std::int64_t in_c : {1, 2, 3, 16, 17, 31, 33, 64, 65})
    for (const std::int64_t out_c : {1, 3, 17, 64, 130, 260}) {
      expect_drawn({1, in_c, 3, 4, out_c, 2, 2, 1, 1, 1, 0}, rng);
      if (HasFailure()) return;
    }
}

TEST_P(CudaConv2d, EveryMixOfDtypesLayoutsAndBias) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  for (const Dtype in : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::s8})
    for (const Dtype out : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::s32})
      for (const ImageLayout in_layout : {ImageLayout::nchw, ImageLayout::nhwc})
        for (const ImageLayout out_layout : {ImageLayout::nchw, ImageLayout::nhwc})
          for (const bool with_bias : {false, true}) {
            const Conv2dShape shape = {2, 7, 5, 6, 19, 3, 2, 1, 2, 1, 1};
            const Conv2dProblem p =
                random_conv2d(GetParam().host, {shape, in, out, in_layout, out_layout, with_bias}, rng);
            expect_kernels(GetParam(), p, expected_sums(p));
            if (HasFailure()) return;
          }
}

TEST_P(CudaConv2d, GeometryAtTheEdges) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  const Conv2dShape shapes[] = {
      {2, 5, 3, 4, 18, 2, 1, 1, 1, 5, 4},         // windows that lie wholly in the padding
      {1, 3, 2, 2, 17, 5, 5},                     // kernel larger than the image: no output
      {0, 3, 4, 4, 5, 3, 3},                      // no image
      {2, 0, 4, 4, 5, 3, 3, 1, 1, 1, 1},          // no channel: zeros
      {2, 3, 4, 4, 0, 3, 3},                      // no output channel
      {2, 3, 0, 4, 5, 3, 3, 1, 1, 2, 2},          // no line, yet outputs
      {1, 1, 1, 1, 1, 1, 1},                      //
      {2, 4, 9, 9, 33, 1, 1, 3, 4},               // stride beyond the kernel
      {3, 40, 13, 11, 70, 3, 3, 1, 1, 1, 1},      // more than one tile of everything
      {1, 2, 40, 3, 5, 7, 1, 1, 1, 3, 0, 3, 1},   // tall image, tall kernel
      {1, 2, 3, 130, 5, 1, 7, 1, 2, 0, 9, 1, 4},  // wide image, wide kernel
      {1, 300, 2, 2, 3, 2, 2},                    // deep
      {3, 260, 7, 9, 70, 3, 2, 2, 1, 1, 1},       // deep, its boxes begin within lines and images
      {5, 3, 1, 1, 70, 1, 1, 1, 1, 0, 0, 9, 9},   // dilation without a second tap
      {2, 64, 19, 41, 66, 3, 3, 1, 1, 1, 1},      // tiles beside and below one another
      {5, 64, 7, 6, 64, 3, 3, 1, 1, 1, 1},        // several images in a tile
      {1, 48, 20, 33, 65, 3, 4, 1, 1, 2, 2, 2, 2},
      {3, 64, 15, 15, 130, 3, 3, 2, 2, 1, 1},
      {2, 96, 17, 20, 130, 1, 1, 2, 2},  // pixels that no window reads
      {2, 40, 9, 70, 5, 1, 3, 3, 1, 1, 0},
  };
  for (const Conv2dShape& shape : shapes)
    for (int i = 0; i < 4; ++i) {
      expect_drawn(shape, rng);
      if (HasFailure()) return;
    }
}

TEST_P(CudaConv2d, ManyRandomShapes) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  const char* text = std::getenv("BIE_TEST_SHAPES");
  const int wanted = text == nullptr ? 300 : std::atoi(text);
  for (int done = 0; done < wanted;) {
    Conv2dShape s = {rng.between(1, 3),  rng.one_of({1, 2, 3, 8, 17, 32, 50}), rng.between(1, 14),
                     rng.between(1, 14), rng.one_of({1, 3, 16, 65, 130}),      rng.between(1, 5),
                     rng.between(1, 5)};
    s.stride_h = rng.between(1, 4), s.stride_w = rng.between(1, 4);
    s.pad_h = rng.between(0, 4), s.pad_w = rng.between(0, 4);
    s.dil_h = rng.between(1, 3), s.dil_w = rng.between(1, 3);
    if (GetParam().grouped) {
      s.groups = rng.one_of({1, 2, 3, 5, 8, 33, 40});
      s.in_c = s.groups * rng.one_of({1, 2, 3, 4, 5, 8, 17});
      s.out_c = s.groups * rng.one_of({1, 2, 3, 4, 5, 8, 12});
    }
    if (s.batch * s.out_h() * s.out_w() * s.out_c * s.depth() > 200000) continue;
    const cuda::Conv2dTable table = GetParam().table();
    const int number = static_cast<int>(rng.between(0, table.count - 1));
    if (!computes(table.best_first[number], s)) continue;
    expect_drawn(s, rng, number);
    if (HasFailure()) return;
    ++done;
  }
  RecordProperty("shapes", wanted);
}

TEST_P(CudaConv2d, GroupsOfEverySize) {
  BIE_NEEDS_GPU();
  if (!GetParam().grouped) return;  // the other tables refuse groups
  ReplayableRng rng;
  const std::int64_t sizes[][3] = {
      {33, 1, 1}, {40, 1, 1}, {7, 1, 3}, {16, 1, 4},  {3, 2, 2},   {20, 2, 4},  {5, 3, 3}, {9, 4, 4},
      {32, 4, 4}, {8, 8, 8},  {2, 5, 7}, {3, 17, 12}, {4, 32, 32}, {2, 64, 20}, {1, 6, 8},
  };
  for (const auto& [groups, in, out] : sizes)
    for (const std::int64_t kernel : {1, 3, 5, 7})
      for (const std::int64_t stride : {1, 2, 3, 4}) {
        Conv2dShape s = {2, groups * in, 9, 21, groups * out, kernel, kernel};
        s.stride_h = s.stride_w = stride;
        s.pad_h = kernel / 2, s.pad_w = rng.between(0, kernel);
        s.dil_h = rng.between(1, 2), s.dil_w = rng.coin() ? rng.between(1, 4) : 1;
        s.groups = groups;
        expect_drawn(s, rng);
        if (HasFailure()) return;
      }
  const Conv2dShape large[] = {
      {3, 72, 37, 70, 72, 7, 7, 1, 1, 3, 3, 1, 1, 72},  // tiles beside and below one another, more than one slab
      {2, 48, 40, 52, 96, 3, 3, 2, 2, 1, 1, 1, 1, 48},
      {2, 64, 33, 40, 64, 3, 3, 1, 1, 1, 1, 1, 1, 16},
      {1, 40, 9, 130, 40, 3, 5, 1, 1, 1, 6, 1, 3, 40},
  };
  for (const Conv2dShape& shape : large)
    for (int i = 0; i < 4; ++i) {
      expect_drawn(shape, rng);
      if (HasFailure()) return;
    }
}

TEST_P(CudaConv2d, FloatFiltersBecomePanels) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  const Conv2dWidth& width = GetParam().host;
  Conv2dShape s = {1, 21, 5, 5, 18, 3, 2, 1, 1, 1, 1};
  s.pad_code = width.pad_code;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::s8}) {
    // One image per filter, of the filter's own values, tells their codes.
    const Conv2dProblem source = random_conv2d(width, {{18, 21, 3, 2, 1, 1, 1}, dtype}, rng);
    Conv2dProblem p = random_conv2d(width, {s}, rng);
    for (std::int64_t o = 0; o < 18; ++o)
      for (std::int64_t e = 0; e < s.depth(); ++e)
        write_code(p.weight.data() + o * row_bytes(width.code, s.depth()), width.code, e,
                   source.activation(o, e / 6, e / 2 % 3, e % 2));
    const std::vector<std::int32_t> sums = expected_sums(p);
    const cuda::Conv2dTable table = GetParam().table();
    const DeviceBytes weight(source.x), x(p.x), scales(std::vector<float>{source.step, p.step});
    int flag_count = 0;
    const DeviceBytes panels(static_cast<std::size_t>(s.out_c * table.panel_row(s)));
    const DeviceBytes workspace(static_cast<std::size_t>(table.workspace(s)));
    const DeviceBytes y(sums.size() * 4);
    ASSERT_EQ(table.prepack({weight.get(), dtype, {scales.as<float>(), 0}, 1e-30f}, s, panels.get(), nullptr,
                            &flag_count, default_queue),
              Status::ok);
    ASSERT_EQ(table.back().run(s, {x.get(), p.c.in, ImageLayout::nchw, nullptr, {scales.as<float>() + 1, 0}, 1e-30f},
                               {panels.get()}, {y.get(), Dtype::s32, ImageLayout::nchw, {}, {}}, workspace.get(),
                               default_queue),
              Status::ok);
    ASSERT_TRUE(device_is_well());
    EXPECT_EQ(y.values<std::int32_t>(), sums);
  }
}

TEST_P(CudaConv2d, HalvesWithAndWithoutABias) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16})
    for (const std::int64_t in_c : {16, 48, 64, 80, 272})
      for (const bool with_bias : {false, true}) {
        const Conv2dShape shape = {3, in_c, 11, 13, 72, 3, 3, 1, 2, 1, 1};
        const Conv2dProblem p =
            random_conv2d(GetParam().host, {shape, dtype, dtype, ImageLayout::nhwc, ImageLayout::nhwc, with_bias}, rng);
        expect_kernels(GetParam(), p, expected_sums(p));
        if (HasFailure()) return;
      }
}

/// So many that a block has several of them, and uses its shared memory again and again.
TEST_P(CudaConv2d, ManyTiles) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  const Conv2dShape shapes[] = {
      {120, 16, 22, 22, 8, 3, 3, 1, 1, 1, 1},
      {90, 32, 33, 31, 72, 3, 2, 2, 1, 1, 0},
  };
  for (const Conv2dShape& shape : shapes)
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16})
      for (const bool with_bias : {false, true}) {
        const Conv2dProblem p =
            random_conv2d(GetParam().host, {shape, dtype, dtype, ImageLayout::nhwc, ImageLayout::nhwc, with_bias}, rng);
        expect_kernels(GetParam(), p, expected_sums(p));
        if (HasFailure()) return;
      }
}

TEST_P(CudaConv2d, HalvesInPlanes) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  const Conv2dShape shapes[] = {
      {3, 40, 12, 16, 72, 3, 3, 1, 1, 1, 1},  // eight pixels are written at once
      {3, 64, 6, 10, 130, 3, 3, 1, 1, 1, 1},  // two, of several images in a tile
      {2, 96, 14, 14, 66, 3, 3, 2, 2, 1, 1},  // an odd line of an odd plane
      {2, 20, 9, 12, 24, 2, 2, 1, 1, 1, 0},   // an odd line of an even plane
      {1, 272, 8, 40, 40, 1, 5, 2, 1, 0, 2},  // a deep one, its taps in one line
      {2, 33, 4, 150, 9, 3, 3, 1, 2, 2, 1, 2},
  };
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16})
    for (const Conv2dShape& shape : shapes)
      for (const bool with_bias : {false, true}) {
        const Conv2dProblem p =
            random_conv2d(GetParam().host, {shape, dtype, dtype, ImageLayout::nchw, ImageLayout::nchw, with_bias}, rng);
        expect_kernels(GetParam(), p, expected_sums(p));
        if (HasFailure()) return;
      }
}

/// Kernels of one tap read a pixel once and keep no image.
TEST_P(CudaConv2d, HalvesOfOneTap) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  const Conv2dShape shapes[] = {
      {1, 8, 1, 1, 8, 1, 1},              // one pixel
      {2, 16, 5, 7, 24, 1, 1},            // a tile that is not full
      {3, 64, 9, 11, 64, 1, 1, 2, 3},     // pixels that no window reads
      {2, 72, 13, 9, 136, 1, 1},          // a piece of channels that is not full
      {2, 96, 30, 31, 264, 1, 1},         // more tiles than one of everything
      {1, 136, 9, 8, 40, 1, 1, 1, 2},     // a second chunk of one piece
      {2, 256, 21, 17, 520, 1, 1, 2, 1},  // three tiles of output channels
      {1, 520, 6, 7, 72, 1, 1},           // several chunks
      {1, 1032, 5, 5, 128, 1, 1},         // a second block of signs
      {40, 32, 24, 25, 64, 1, 1},         // more tiles than warpgroups
  };
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16})
    for (const Conv2dShape& shape : shapes)
      for (const bool with_bias : {false, true}) {
        const Conv2dProblem p =
            random_conv2d(GetParam().host, {shape, dtype, dtype, ImageLayout::nhwc, ImageLayout::nhwc, with_bias}, rng);
        expect_kernels(GetParam(), p, expected_sums(p));
        if (HasFailure()) return;
      }
}

/// Few channels, of which a window reads at most 32 elements a line.
TEST_P(CudaConv2d, FewChannels) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  const Conv2dShape shapes[] = {
      {2, 3, 40, 37, 64, 7, 7, 2, 2, 3, 3},         // the first layer of many a net
      {3, 1, 18, 33, 70, 5, 5, 1, 1, 2, 2},         // more than one tile of everything
      {1, 4, 16, 32, 24, 8, 8, 1, 1},               // all 32 elements, all eight lines
      {1, 16, 20, 19, 9, 2, 2, 3, 5, 1, 1},         // all 32 elements of two taps
      {2, 3, 21, 24, 130, 3, 3, 1, 1, 1, 1, 3, 1},  // lines apart
      {1, 2, 50, 48, 17, 3, 16, 2, 3, 0, 8},        // a wide window, planes of pairs
      {1, 5, 3, 4, 8, 1, 6, 1, 1, 0, 4},            // wider than the image
  };
  for (const Conv2dShape& shape : shapes)
    for (int i = 0; i < 8; ++i) {
      expect_drawn(shape, rng);
      if (HasFailure()) return;
    }
}

/// Beyond 2^100 a sum might be infinite, which a table of bounds would not show.
TEST_P(CudaConv2d, BiasTooLargeForATable) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  for (const ImageLayout layout : {ImageLayout::nchw, ImageLayout::nhwc}) {
    const Conv2dShape shape = {2, 48, 6, 8, 64, 3, 3, 1, 1, 1, 1};
    Conv2dProblem p = random_conv2d(GetParam().host, {shape, Dtype::bf16, Dtype::bf16, layout, layout, true}, rng);
    for (std::size_t c = 0; c < p.bias.size(); c += 3) p.bias[c] = c % 2 == 0 ? 0x1p101f : -0x1p101f;
    expect_kernels(GetParam(), p, expected_sums(p));
  }
}

TEST_P(CudaConv2d, NanMakesEveryResultNan) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  for (const Conv2dShape& s : {Conv2dShape{2, 5, 6, 6, 9, 3, 3}, Conv2dShape{2, 40, 30, 30, 72, 1, 1}})
    for (const ImageLayout layout : {ImageLayout::nchw, ImageLayout::nhwc})
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        Conv2dProblem p = random_conv2d(GetParam().host, {s, Dtype::f16, Dtype::f16, layout, layout}, rng);
        write_float(p.x.data(), Dtype::f16, 77, bad);
        const cuda::Conv2dTable table = GetParam().table();
        const DeviceBytes x(p.x), panels(static_cast<std::size_t>(s.out_c * table.panel_row(s)));
        const DeviceBytes workspace(static_cast<std::size_t>(table.workspace(s)));
        cudaMemset(panels.get(), 0, static_cast<std::size_t>(s.out_c * table.panel_row(s)));
        const cuda::Image image = {x.get(), Dtype::f16, layout, nullptr, {nullptr, 1}, 1};
        for (const cuda::Conv2dKernel& kernel : table) {
          const DeviceBytes y(static_cast<std::size_t>(2 * p.out_elements()));
          const cuda::Conv2dOutput out = {y.get(), Dtype::f16, layout, {nullptr, 1}, {nullptr, 1}};
          if (!computes(kernel, s) || (kernel.takes != nullptr && !kernel.takes(image, out))) continue;
          ASSERT_EQ(kernel.run(s, image, {panels.get()}, out, workspace.get(), default_queue), Status::ok);
          for (const std::uint16_t half : y.values<std::uint16_t>()) ASSERT_GT(half & 0x7fff, 0x7c00) << kernel.name;
        }
      }
}

TEST_P(CudaConv2d, RefusesWhatTheContractRefuses) {
  const cuda::Conv2dTable table = GetParam().table();
  for (const cuda::Conv2dKernel& kernel : table) {
    const auto run = [&](const Conv2dShape& s, Dtype in) {
      return kernel.run(s, {nullptr, in, ImageLayout::nchw, nullptr, {nullptr, 1}, 1}, {nullptr},
                        {nullptr, Dtype::f32, ImageLayout::nchw, {}, {}}, nullptr, default_queue);
    };
    EXPECT_EQ(run({1, 1, 1, 1, 1, 0, 1}, Dtype::f32), Status::bad_shape) << kernel.name;
    EXPECT_EQ(run({1, table.max_k + 1, 1, 1, 1, 1, 1}, Dtype::f32), Status::too_deep) << kernel.name;
    EXPECT_EQ(run({1, 1, 1, 1, 1, 1, 1}, Dtype::bits), Status::bad_dtype) << kernel.name;
    EXPECT_EQ(run({1, 1, 1, 1, 1, 1, 1, INT32_MAX}, Dtype::f32), Status::bad_shape) << kernel.name;
    EXPECT_EQ(run({0, 1, 1, 1, 1, 1, 1}, Dtype::f32), Status::ok) << kernel.name;
  }
}

std::string width_name(const testing::TestParamInfo<CudaWidth>& info) { return info.param.host.name; }
INSTANTIATE_TEST_SUITE_P(Widths, CudaConv2d, testing::ValuesIn(widths), width_name);

}  // namespace
}  // namespace bie::kernels::test
