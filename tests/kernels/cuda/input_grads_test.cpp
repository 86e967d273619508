// The pass over a quantised activation: the CPU's gradients bit for bit, and its codes, wherever a quotient is hard to
// round.
#include "bie/kernels/cuda/input_grad.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/arithmetic/codes.h"
#include "tests/kernels/cuda/device_memory.h"
#include "tests/kernels/replayable_rng.h"

namespace bie::kernels::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

/// Multiples of halves of the scale with their neighbours, then any, then what no quotient has.
std::vector<float> hard_numbers(float scale, ReplayableRng& rng) {
  std::vector<float> x;
  for (int half = -300; half <= 300; ++half) {
    float at = static_cast<float>(half) * 0.5f * scale;
    for (int back = 0; back < 3; ++back) at = std::nextafter(at, -infinity);
    for (int i = 0; i < 7; ++i, at = std::nextafter(at, infinity)) x.push_back(at);
  }
  for (int i = 0; i < 2000; ++i)
    x.push_back(std::ldexp(static_cast<float>(rng.between(-(1 << 24), 1 << 24)), -16) * std::fabs(scale));
  for (const float rare : {0.0f, -0.0f, 1e-45f, -1e-39f, 1e-30f, 1e30f, -3e38f, infinity, -infinity, nan})
    x.push_back(rare);
  return x;
}

void expect_the_cpus(const InputRule& rule, float scale) {
  SCOPED_TRACE(testing::Message() << "signs " << rule.signs << ", codes to " << rule.codes.hi << ", exact "
                                  << rule.step.exact << ", scaled " << rule.step.scaled << ", scale " << scale);
  ReplayableRng rng;
  const std::vector<float> x = hard_numbers(scale, rng);
  std::vector<float> up(x.size());
  for (float& value : up) value = std::ldexp(static_cast<float>(rng.between(-(1 << 20), 1 << 20)), -18);
  const DeviceBytes device_x(x), device_up(up), grad_x(4 * x.size()), grad_scale(sizeof(float)), codes(x.size()),
      device_scale(std::vector<float>{scale}), gain(std::vector<float>{0.37f});
  cuda::InputPass pass{};
  pass.rows = 1;
  pass.columns = static_cast<std::int64_t>(x.size());
  pass.up = device_up.as<float>();
  pass.up_parts = 1;
  pass.gain = {gain.as<float>(), 1};
  pass.x = device_x.get();
  pass.x_dtype = Dtype::f32;
  pass.grad_x = grad_x.get();
  pass.grad_scale = grad_scale.as<float>();
  pass.codes = codes.as<std::int8_t>();
  const DeviceBytes workspace(static_cast<std::size_t>(cuda::input_pass_bytes(pass)));
  ASSERT_EQ(cuda::input_grads(pass, rule, {device_scale.as<float>(), 1}, workspace.get(), default_queue), Status::ok);
  ASSERT_TRUE(device_is_well());

  const InputGradKernel cpu = input_grad_table().back();
  std::vector<float> wanted = up;
  double ignored = 0;
  const InputPass host{pass.columns, x.data(), wanted.data(), 0.37f};
  ASSERT_EQ(rule.signs ? cpu.sign_backward(host, scale, rule.step.denominator, &ignored, serial())
                       : cpu.quantizer_backward(host, scale, rule.codes, rule.step, &ignored, serial()),
            Status::ok);
  const std::vector<float> found = grad_x.values<float>();
  const std::vector<std::int8_t> found_codes = codes.values<std::int8_t>();
  const float step = lifted(scale, rule.codes.floor);
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(found[i], wanted[i]) << "x " << x[i];
    if (std::isnan(x[i])) continue;  // has no code
    const int code = rule.signs ? (x[i] > 0) - (x[i] < 0) : quantize(x[i], step, rule.codes.lo, rule.codes.hi);
    ASSERT_EQ(found_codes[i], code) << "x " << x[i];
  }
}

TEST(InputGrads, AreTheCpusWhereQuotientsAreHardToRound) {
  BIE_NEEDS_GPU();
  const StepRule exact{true, false, 5.0}, scaled{false, true, 5.0};
  for (const float scale : {0.1f, 0.37f, 1.0f, 1.9999999f, 3.0f, 1e-4f, 7e4f, 2e-18f, 3e18f, 1e-30f, 1e30f, -0.3f}) {
    expect_the_cpus({true, {}, exact}, scale);
    for (const float floor : {1e-35f, 1e-5f})
      for (const StepRule& step : {exact, scaled}) {
        expect_the_cpus({false, {-128, 127, floor}, step}, scale);
        expect_the_cpus({false, {-8, 7, floor}, step}, scale);
      }
  }
}

}  // namespace
}  // namespace bie::kernels::test
