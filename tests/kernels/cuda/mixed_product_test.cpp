// Products of floats and codes on CUDA compute the formula: sums of whole numbers exactly, others within float32's
// rounding of the sum of magnitudes.
#include <cmath>
#include <cstdint>
#include <vector>

#include "bie/kernels/cuda/quantize.h"
#include "tests/kernels/cuda/mixed_operands.h"
#include "tests/kernels/replayable_rng.h"

namespace bie::kernels::test {
namespace {

using Kind = MixedProduct::Kind;

/// add(float, code, out) for the indices of every product of the sum.
template <class Add>
void for_products(const MixedProduct& p, const Add& add) {
  if (!convolves(p.kind)) {
    for (std::int64_t r = 0; r < p.rows; ++r)
      for (std::int64_t d = 0; d < p.depth; ++d)
        for (std::int64_t c = 0; c < p.columns; ++c)
          add(p.kind == Kind::times ? r * p.depth + d : d * p.rows + r, d * p.columns + c, r * p.columns + c);
    return;
  }
  const Conv2dShape& s = p.shape;
  std::int64_t g = 0;  // of pixel and output channel
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t y = 0; y < s.out_h(); ++y)
      for (std::int64_t x = 0; x < s.out_w(); ++x)
        for (std::int64_t o = 0; o < s.out_c; ++o, ++g)
          for (std::int64_t i = 0; i < s.kernel_h; ++i)
            for (std::int64_t j = 0; j < s.kernel_w; ++j) {
              const std::int64_t line = y * s.stride_h - s.pad_h + i * s.dil_h,
                                 column = x * s.stride_w - s.pad_w + j * s.dil_w;
              if (line < 0 || line >= s.in_h || column < 0 || column >= s.in_w) continue;
              const std::int64_t pixel = ((n * s.in_h + line) * s.in_w + column) * s.in_c,
                                 tap = ((o * s.kernel_h + i) * s.kernel_w + j) * s.in_c;
              for (std::int64_t c = 0; c < s.in_c; ++c)
                if (p.kind == Kind::input_grad)
                  add(g, tap + c, pixel + c);
                else
                  add(g, pixel + c, tap + c);
            }
}

/// The integer gradient is the same from the totals that the product left as from its results.
void expect_totals(const MixedProduct& p, const cuda::MixedNeeds& needs, const DeviceBytes& out,
                   const std::vector<float>& results) {
  const auto count = static_cast<std::int64_t>(results.size());
  const DeviceBytes own(cuda::reduction_bytes), read(results.size()), left(results.size());
  const auto int8_grad = [&](const DeviceBytes& to, int totals, void* workspace) {
    return cuda::int8_grad(out.get(), Dtype::f32, count, {nullptr, 1}, to.as<std::int8_t>(), totals, workspace,
                           default_queue);
  };
  ASSERT_EQ(int8_grad(read, 0, own.get()), Status::ok);
  ASSERT_EQ(int8_grad(left, needs.totals, p.totals), Status::ok);
  ASSERT_TRUE(device_is_well());
  ASSERT_EQ(left.values<std::int8_t>(), read.values<std::int8_t>());
}

/// dtype f32: three parts. whole: floats are small whole numbers.
void expect_product(MixedProduct p, Dtype dtype, bool whole) {
  SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(p.kind) << ", " << p.rows << ", " << p.columns << ", "
                                  << p.depth << ", dtype " << static_cast<int>(dtype) << ", signs " << p.signs
                                  << ", whole " << whole);
  ReplayableRng rng;
  const ProductSizes sizes = sizes_of(p);
  std::vector<float> floats(static_cast<std::size_t>(sizes.floats));
  for (float& value : floats) {
    value = static_cast<float>(rng.between(-100, 100));
    if (!whole) value = std::ldexp(static_cast<float>(rng.between(-(1 << 24), 1 << 24)), -20);
  }
  const ProductFloats product_floats(&floats, dtype);
  std::vector<std::int8_t> codes(static_cast<std::size_t>(sizes.codes));
  for (std::int8_t& code : codes) code = static_cast<std::int8_t>(rng.between(whole ? -8 : -128, whole ? 7 : 127));
  const auto number = [&](std::int8_t code) { return p.signs ? (code > 0) - (code < 0) : code; };

  std::vector<double> sums(static_cast<std::size_t>(sizes.out)), magnitudes(sums.size());
  for_products(p, [&](std::int64_t f, std::int64_t c, std::int64_t out) {
    const double product =
        static_cast<double>(floats[static_cast<std::size_t>(f)]) * number(codes[static_cast<std::size_t>(c)]);
    sums[static_cast<std::size_t>(out)] += product;
    magnitudes[static_cast<std::size_t>(out)] += std::abs(product);
  });

  const DeviceBytes device_codes(codes);
  p.floats = product_floats.parts();
  p.codes = device_codes.as<std::int8_t>();
  const DeviceBytes out(static_cast<std::size_t>(4 * sizes.out)), gain(std::vector<float>{whole ? 0.5f : 3.0f});
  p.gain = {gain.as<float>(), 1};
  p.out = out.as<float>();
  const auto needs = cuda::mixed_needs(this_gpu(), p);
  ASSERT_TRUE(needs.has_value());
  const DeviceBytes workspace(static_cast<std::size_t>(needs->workspace_bytes)), totals(cuda::reduction_bytes);
  p.totals = totals.get();
  ASSERT_EQ(cuda::mixed_product(p, workspace.get(), default_queue), Status::ok) << cuda::last_error();
  ASSERT_TRUE(device_is_well());
  const std::vector<float> got = out.values<float>();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double by = whole ? 0.5 : 3.0;
    const double tolerance = whole ? 0 : by * magnitudes[i] * 0x1p-18;  // sixteen terms are cut where the largest ends
    ASSERT_NEAR(static_cast<double>(got[i]), by * sums[i], tolerance) << "element " << i;
  }
  expect_totals(p, *needs, out, got);
}

void expect_every_dtype(const MixedProduct& p) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16, Dtype::f32})
    for (const bool whole : {true, false}) expect_product(p, dtype, whole);
}

TEST(MixedProduct, SmallOddMatrices) {
  BIE_NEEDS_MIXED_PRODUCTS();
  for (const auto& [rows, columns, depth] : {std::tuple{1, 16, 8}, {8, 48, 72}, {40, 80, 64}, {136, 208, 136}}) {
    expect_every_dtype(of_matrices(Kind::times, rows, columns, depth));
    MixedProduct signs = of_matrices(Kind::times, rows, columns, depth);
    signs.signs = true;
    expect_every_dtype(signs);
  }
  for (const auto& [rows, columns, depth] : {std::tuple{8, 16, 1}, {8, 48, 71}, {40, 80, 63}, {136, 208, 137}})
    expect_every_dtype(of_matrices(Kind::transposed_times, rows, columns, depth));
}

TEST(MixedProduct, EveryTile) {
  BIE_NEEDS_MIXED_PRODUCTS();
  // Few columns: warpgroups that share their codes. Many tiles: large ones. Deep: cut into parts.
  expect_every_dtype(of_matrices(Kind::times, 5000, 64, 64));
  expect_every_dtype(of_matrices(Kind::times, 1100, 2064, 16));
  expect_every_dtype(of_matrices(Kind::transposed_times, 1104, 2064, 17));
  const MixedProduct deep = of_matrices(Kind::transposed_times, 72, 80, 3001);
  expect_every_dtype(deep);
  MixedProduct known = deep;
  known.floats = {{}, 1, Dtype::bf16};
  ASSERT_TRUE(cuda::mixed_needs(this_gpu(), known).has_value());
  EXPECT_GT(cuda::mixed_needs(this_gpu(), known)->workspace_bytes, 0);
  EXPECT_GT(cuda::mixed_needs(this_gpu(), known)->totals, 0);  // expect_totals compares what the sum of parts left
}

TEST(MixedProduct, Convolutions) {
  BIE_NEEDS_MIXED_PRODUCTS();
  struct Case {
    std::int64_t batch, in_c, in_h, in_w, out_c, kernel_h, kernel_w, stride, pad, dil;
  };
  for (const Case& c : {Case{2, 16, 7, 9, 24, 3, 3, 1, 1, 1}, Case{1, 48, 9, 8, 80, 3, 2, 2, 1, 1},
                        Case{2, 64, 11, 8, 72, 5, 5, 1, 2, 1}, Case{1, 128, 9, 9, 64, 3, 3, 1, 2, 2},
                        Case{2, 64, 8, 8, 136, 1, 1, 1, 0, 1}, Case{2, 32, 9, 9, 16, 3, 3, 1, 0, 1},
                        Case{1, 32, 9, 9, 16, 1, 1, 2, 0, 1}, Case{9, 16, 14, 14, 16, 3, 3, 1, 1, 1}}) {
    MixedProduct p{};
    p.shape = {c.batch,  c.in_c,   c.in_h, c.in_w, c.out_c, c.kernel_h, c.kernel_w,
               c.stride, c.stride, c.pad,  c.pad,  c.dil,   c.dil};
    p.kind = Kind::weight_grad;
    expect_every_dtype(p);
    p.kind = Kind::input_grad;
    if (c.stride > 1) continue;
    expect_every_dtype(p);
    p.signs = true;
    expect_product(p, Dtype::bf16, true);
  }
}

TEST(MixedProduct, RefusesWhatTheAcceleratorCannotRead) {
  BIE_NEEDS_MIXED_PRODUCTS();
  const DeviceBytes memory(1 << 16), out(1 << 16);
  const auto refuses = [&](MixedProduct p) {
    p.floats = {{memory.get(), memory.get(), memory.get()}, 1, Dtype::bf16};
    if (p.codes == nullptr) p.codes = memory.as<std::int8_t>();
    p.out = out.as<float>();
    return !cuda::mixed_needs(this_gpu(), p) && cuda::mixed_product(p, nullptr, default_queue) == Status::bad_shape;
  };
  EXPECT_TRUE(refuses(of_matrices(Kind::times, 8, 24, 8)));              // rows of codes of 24 bytes
  EXPECT_TRUE(refuses(of_matrices(Kind::times, 8, 16, 12)));             // rows of floats of 24 bytes
  EXPECT_TRUE(refuses(of_matrices(Kind::transposed_times, 12, 16, 8)));  // the same
  EXPECT_TRUE(refuses(of_matrices(Kind::times, 0, 16, 8)));
  EXPECT_TRUE(refuses(of_matrices(Kind::times, std::int64_t{1} << 31, 16, 8)));
  MixedProduct shifted = of_matrices(Kind::times, 8, 16, 8);
  shifted.codes = memory.as<std::int8_t>() + 1;
  EXPECT_TRUE(refuses(shifted));
  MixedProduct signs = of_matrices(Kind::transposed_times, 8, 16, 8);
  signs.signs = true;
  EXPECT_TRUE(refuses(signs));
  MixedProduct conv{};
  conv.kind = Kind::input_grad;
  conv.shape = {1, 16, 8, 8, 16, 3, 3};
  conv.shape.stride_h = 2;
  EXPECT_TRUE(refuses(conv));
  conv.shape.stride_h = 1;
  conv.shape.groups = 2;
  EXPECT_TRUE(refuses(conv));
  std::vector<unsigned char> untouched(1 << 16, 0xcd);
  EXPECT_EQ(out.values<unsigned char>(), untouched);
  cuda::Gpu older = this_gpu();
  older.sm = 80;
  EXPECT_FALSE(cuda::mixed_needs(older, of_matrices(Kind::times, 8, 16, 8)));
}

}  // namespace
}  // namespace bie::kernels::test
