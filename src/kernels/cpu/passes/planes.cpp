#include "kernels/cpu/passes.h"

namespace bie::kernels::cpu {
namespace {

void clip(const float* x, std::int64_t count, float lo, float hi, float* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] < lo ? lo : x[i] > hi ? hi : x[i];
}

void round_to_steps(const float* x, std::int64_t count, float step, float lo, float hi, float* y) {
  constexpr float integers = 0x1.8p23f;  // added to a small number it leaves the nearest integer
  for (std::int64_t i = 0; i < count; ++i) {
    const float q = x[i] / step;
    const float within = q < lo ? lo : q > hi ? hi : q;
    y[i] = (within + integers - integers) * step;
  }
}

void bend(const float* x, std::int64_t count, float slope, float* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] < 0 ? x[i] * slope : x[i];
}

void scale(const float* x, std::int64_t count, float by, float* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] * by;
}

void multiply(const float* x, const float* by, std::int64_t count, float* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] * by[i];
}

}  // namespace

const PlanePasses BIE_PASS_SET::plane_passes = {clip, round_to_steps, bend, scale, multiply};

}  // namespace bie::kernels::cpu
