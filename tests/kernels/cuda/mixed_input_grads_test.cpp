// A product that makes an activation's gradients gives those of the product followed by the pass over its result: the
// gradient of x and the codes bit for bit, sums within the rounding of their terms.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include "tests/kernels/cuda/mixed_operands.h"
#include "tests/kernels/replayable_rng.h"

namespace bie::kernels::test {
namespace {

using Kind = MixedProduct::Kind;

struct Activation {
  InputRule rule;
  float scale;
  bool has_bias, wants_codes;
};

/// Outputs of a pass.
struct Written {
  DeviceBytes x, scale, bias, codes;
  Written(std::size_t count, std::size_t columns, std::size_t element)
      : x(count * element), scale(sizeof(float)), bias(columns * sizeof(float)), codes(count) {}

  cuda::InputPass into(cuda::InputPass pass, bool wants_codes) const {
    pass.grad_x = x.get();
    pass.grad_scale = scale.as<float>();
    pass.grad_bias = pass.bias != nullptr ? bias.as<float>() : nullptr;
    pass.codes = wants_codes ? codes.as<std::int8_t>() : nullptr;
    return pass;
  }
};

void expect_gradients(MixedProduct p, Dtype dtype, const Activation& a) {
  SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(p.kind) << ", " << p.rows << ", " << p.columns << ", "
                                  << p.depth << ", dtype " << static_cast<int>(dtype) << ", signs " << p.signs
                                  << ", rule " << a.rule.signs << a.rule.step.exact << a.rule.step.scaled << ", scale "
                                  << a.scale << ", bias " << a.has_bias << ", codes " << a.wants_codes);
  ReplayableRng rng;
  const auto numbers = [&](std::int64_t count, int most) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = std::ldexp(static_cast<float>(rng.between(-most, most)), -18);
    return values;
  };
  const ProductSizes sizes = sizes_of(p);
  const std::int64_t columns = p.kind == Kind::times ? p.columns : p.shape.in_c;
  std::vector<float> floats = numbers(sizes.floats, 1 << 20), bias = numbers(columns, 1 << 16);
  const ProductFloats product_floats(&floats, dtype);
  std::vector<std::int8_t> weight(static_cast<std::size_t>(sizes.codes));
  for (std::int8_t& code : weight) code = static_cast<std::int8_t>(rng.between(-128, 127));
  std::vector<float> x = numbers(sizes.out, 1 << 19);  // in -2 ... 2, so that some is clipped
  const DeviceBytes x32(x);
  const DeviceBytes x16(halves_of(x, dtype == Dtype::f16 ? Dtype::f16 : Dtype::bf16));
  const DeviceBytes device_weight(weight), device_bias(bias), gain(std::vector<float>{0.37f});
  const DeviceBytes up(4 * x.size()), scale(std::vector<float>{a.scale});

  p.floats = product_floats.parts();
  p.codes = device_weight.as<std::int8_t>();
  p.gain = {gain.as<float>(), 1};
  p.out = up.as<float>();
  cuda::InputPass pass{};
  pass.rows = sizes.out / columns;
  pass.columns = columns;
  pass.x = dtype == Dtype::f32 ? x32.get() : x16.get();
  pass.x_dtype = dtype;
  if (a.has_bias) pass.bias = device_bias.as<float>();
  const cuda::Scalar scale_a{scale.as<float>(), 1};

  const std::size_t element = dtype == Dtype::f32 ? 4 : 2;
  const auto width = static_cast<std::size_t>(columns);
  const Written one(x.size(), width, element), two(x.size(), width, element);
  const auto needs = cuda::mixed_needs(this_gpu(), p);
  ASSERT_TRUE(needs.has_value());
  cuda::InputPass behind = two.into(pass, a.wants_codes);
  behind.up = p.out;
  behind.up_parts = 1;
  behind.gain = {nullptr, 1};
  const DeviceBytes splits(static_cast<std::size_t>(needs->workspace_bytes));
  const DeviceBytes sums(static_cast<std::size_t>(cuda::input_pass_bytes(behind)));
  ASSERT_EQ(cuda::mixed_product(p, splits.get(), default_queue), Status::ok);
  ASSERT_EQ(cuda::input_grads(behind, a.rule, scale_a, sums.get(), default_queue), Status::ok);

  p.out = nullptr;
  const cuda::InputPass inside = one.into(pass, a.wants_codes);
  const auto bytes = cuda::mixed_input_grads_bytes(this_gpu(), p, inside);
  ASSERT_TRUE(bytes.has_value());
  const DeviceBytes workspace(static_cast<std::size_t>(*bytes));
  ASSERT_EQ(cuda::mixed_input_grads(p, inside, a.rule, scale_a, workspace.get(), default_queue), Status::ok)
      << cuda::last_error();
  ASSERT_TRUE(device_is_well());

  ASSERT_EQ(one.x.values<std::uint8_t>(), two.x.values<std::uint8_t>());
  if (a.wants_codes) {
    ASSERT_EQ(one.codes.values<std::int8_t>(), two.codes.values<std::int8_t>());
  }
  // The magnitudes of the terms, of which there are as many as elements, bound what their order changes.
  double most = 0;
  for (const float value : up.values<float>()) most = std::max(most, std::abs(static_cast<double>(value)));
  const double bound = a.rule.signs ? 1 : 1 + std::abs(a.rule.codes.lo);
  const double terms = most * bound * static_cast<double>(x.size()) / a.rule.step.denominator;
  const float found = one.scale.values<float>()[0], wanted = two.scale.values<float>()[0];
  ASSERT_NEAR(found, wanted, a.scale == 0 ? 0 : terms * 0x1p-23);
  if (!a.has_bias) return;
  const std::vector<float> found_bias = one.bias.values<float>(), wanted_bias = two.bias.values<float>();
  const double tolerance = most * static_cast<double>(pass.rows) * 0x1p-22;
  for (std::size_t i = 0; i < width; ++i) ASSERT_NEAR(found_bias[i], wanted_bias[i], tolerance) << "column " << i;
}

const InputRule signs{true, {}, {false, false, 3.0}};
const InputRule codes8{false, {-128, 127, 1e-5f}, {true, false, 5.0}};
const InputRule reference8{false, {-128, 127, 1e-5f}, {false, true, 5.0}};
const InputRule codes4{false, {-8, 7, 0.5f}, {true, false, 7.0}};  // its floor is above its scale

void expect_every_rule(const MixedProduct& p) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16, Dtype::f32}) {
    expect_gradients(p, dtype, {signs, 1.25f, true, true});
    expect_gradients(p, dtype, {codes4, 0.125f, true, true});
  }
}

TEST(MixedInputGrads, EveryRule) {
  BIE_NEEDS_MIXED_PRODUCTS();
  MixedProduct p = of_matrices(Kind::times, 41, 80, 72);
  for (const bool of_signs : {false, true}) {
    p.signs = of_signs;
    for (const InputRule& rule : {signs, codes8, reference8, codes4})
      for (const float scale : {0.01f, 1.0f, 0.0f})
        for (const bool has_bias : {false, true})
          expect_gradients(p, Dtype::bf16, {rule, scale, has_bias, /*wants_codes=*/!has_bias || scale == 1});
  }
}

TEST(MixedInputGrads, SmallOddMatrices) {
  BIE_NEEDS_MIXED_PRODUCTS();
  for (const auto& [rows, columns, depth] : {std::tuple{1, 16, 8}, {8, 48, 72}, {39, 80, 64}, {137, 208, 136}})
    expect_every_rule(of_matrices(Kind::times, rows, columns, depth));
}

TEST(MixedInputGrads, EveryTile) {
  BIE_NEEDS_MIXED_PRODUCTS();
  // Few columns: warpgroups that share their codes. Many tiles: large ones, and several a block.
  expect_every_rule(of_matrices(Kind::times, 5003, 64, 64));
  expect_every_rule(of_matrices(Kind::times, 1101, 2064, 16));
  expect_every_rule(of_matrices(Kind::times, 70001, 16, 8));
  MixedProduct of_signs = of_matrices(Kind::times, 5003, 64, 64);
  of_signs.signs = true;
  expect_every_rule(of_signs);
}

TEST(MixedInputGrads, APassOverTheSplitsOfADeepProduct) {
  BIE_NEEDS_MIXED_PRODUCTS();
  const MixedProduct deep = of_matrices(Kind::times, 73, 80, 3000);
  MixedProduct known = deep;
  known.floats = {{}, 1, Dtype::bf16};
  ASSERT_TRUE(cuda::mixed_needs(this_gpu(), known).has_value());
  ASSERT_GT(cuda::mixed_needs(this_gpu(), known)->workspace_bytes, 0);
  expect_every_rule(deep);
}

TEST(MixedInputGrads, Convolutions) {
  BIE_NEEDS_MIXED_PRODUCTS();
  struct Case {
    std::int64_t batch, in_c, in_h, in_w, out_c, kernel, pad;
  };
  for (const Case& c : {Case{2, 16, 7, 9, 24, 3, 1}, Case{2, 64, 11, 8, 72, 5, 2}, Case{2, 64, 8, 8, 136, 1, 0},
                        Case{9, 128, 14, 14, 16, 3, 1}}) {
    MixedProduct p{};
    p.kind = Kind::input_grad;
    p.shape = {c.batch, c.in_c, c.in_h, c.in_w, c.out_c, c.kernel, c.kernel, 1, 1, c.pad, c.pad, 1, 1};
    expect_every_rule(p);
  }
}

TEST(MixedInputGrads, RefusesWhatItCannotRead) {
  BIE_NEEDS_MIXED_PRODUCTS();
  const DeviceBytes memory(1 << 16);
  MixedProduct p = of_matrices(Kind::times, 8, 16, 8);
  p.floats = {{memory.get(), nullptr, nullptr}, 1, Dtype::bf16};
  p.codes = memory.as<std::int8_t>();
  cuda::InputPass pass{};
  pass.rows = 8;
  pass.columns = 16;
  pass.x = pass.grad_x = memory.get();
  pass.x_dtype = Dtype::bf16;
  pass.grad_scale = memory.as<float>();
  const auto refuses = [&](const MixedProduct& product, const cuda::InputPass& its_pass) {
    return !cuda::mixed_input_grads_bytes(this_gpu(), product, its_pass) &&
           cuda::mixed_input_grads(product, its_pass, signs, {nullptr, 1}, memory.get(), default_queue) ==
               Status::bad_shape;
  };
  EXPECT_TRUE(cuda::mixed_input_grads_bytes(this_gpu(), p, pass).has_value());
  cuda::InputPass other = pass;
  other.x_dtype = Dtype::f32;
  EXPECT_TRUE(refuses(p, other));
  other = pass;
  other.x = memory.as<char>() + 2;
  EXPECT_TRUE(refuses(p, other));
  other = pass;
  other.bias = memory.as<float>() + 1;
  EXPECT_TRUE(refuses(p, other));
  MixedProduct transposed = p;
  transposed.kind = Kind::transposed_times;
  EXPECT_TRUE(refuses(transposed, pass));
  MixedProduct narrow = of_matrices(Kind::times, 8, 8, 8);
  narrow.floats = p.floats;
  narrow.codes = p.codes;
  EXPECT_TRUE(refuses(narrow, pass));
}

}  // namespace
}  // namespace bie::kernels::test
