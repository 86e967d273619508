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

template <class Compare>
void choose_by(const Compare& holds, const float* x, const float* yes, const float* no, std::int64_t count, float* y) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float a = yes[i], b = no[i];  // both are read, so that the choice is a mask
    y[i] = holds(x[i]) ? a : b;
  }
}

void choose(Comparison comparison, float limit, const float* x, const float* yes, const float* no, std::int64_t count,
            float* y) {
  const auto by = [&](const auto& holds) { choose_by(holds, x, yes, no, count, y); };
  switch (comparison) {
    case Comparison::greater: return by([limit](float v) { return v > limit; });
    case Comparison::greater_or_equal: return by([limit](float v) { return v >= limit; });
    case Comparison::less: return by([limit](float v) { return v < limit; });
    case Comparison::less_or_equal: return by([limit](float v) { return v <= limit; });
    case Comparison::equal: return by([limit](float v) { return v == limit; });
  }
}

}  // namespace

const PlanePasses BIE_PASS_SET::plane_passes = {clip, round_to_steps, bend, scale, multiply, choose};

}  // namespace bie::kernels::cpu
