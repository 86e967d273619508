#include "kernels/cpu/passes.h"

namespace bie::kernels::cpu {
namespace {

float bent(float v, Bend act) {
  const float low = act.cuts ? 0.0f : v * act.slope;
  return v < 0 ? low : v;
}

void channel(const float* x, float scale, float shift, const float* add, Bend act, std::int64_t count, float* y) {
  if (add == nullptr)
    for (std::int64_t i = 0; i < count; ++i) y[i] = bent(x[i] * scale + shift, act);
  else
    for (std::int64_t i = 0; i < count; ++i) y[i] = bent(x[i] * scale + shift + add[i], act);
}

void row(const float* x, const float* scale, const float* shift, const float* add, Bend act, std::int64_t count,
         float* y) {
  if (add == nullptr)
    for (std::int64_t i = 0; i < count; ++i) y[i] = bent(x[i] * scale[i] + shift[i], act);
  else
    for (std::int64_t i = 0; i < count; ++i) y[i] = bent(x[i] * scale[i] + shift[i] + add[i], act);
}

void keep_larger(const float* x, std::int64_t count, float* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] > y[i] || x[i] != x[i] ? x[i] : y[i];
}

void pool_line(const float* x, std::int64_t pool, std::int64_t count, float* y) {
  if (pool == 2) {
    for (std::int64_t i = 0; i < count; ++i) {
      const float a = x[2 * i], b = x[2 * i + 1];
      y[i] = b > a || b != b ? b : a;
    }
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = x[pool * i];
    for (std::int64_t j = 1; j < pool; ++j) {
      const float v = x[pool * i + j];
      y[i] = v > y[i] || v != v ? v : y[i];
    }
  }
}

}  // namespace

const BlockTailPasses BIE_PASS_SET::block_tail_passes = {channel, row, keep_larger, pool_line};

}  // namespace bie::kernels::cpu
