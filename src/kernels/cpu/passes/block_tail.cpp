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

/// b where it is larger or no number, else a.
float larger(float a, float b) { return b > a || b != b ? b : a; }

void pool_pairs(const float* x, std::int64_t width, std::int64_t rows, std::int64_t count, float* y) {
  for (std::int64_t r = 0; r < rows; ++r, x += 2 * width, y += count) {
    const float* const below = x + width;
    for (std::int64_t i = 0; i < count; ++i)
      y[i] = larger(larger(x[2 * i], below[2 * i]), larger(x[2 * i + 1], below[2 * i + 1]));
  }
}

void pool_rows(float* x, std::int64_t pool, std::int64_t width, std::int64_t rows, std::int64_t count, float* y) {
  if (pool == 2) return pool_pairs(x, width, rows, count, y);
  for (std::int64_t r = 0; r < rows; ++r, x += pool * width, y += count) {
    for (std::int64_t j = 1; j < pool; ++j) keep_larger(x + j * width, count * pool, x);
    for (std::int64_t i = 0; i < count; ++i) {
      y[i] = x[pool * i];
      for (std::int64_t j = 1; j < pool; ++j) y[i] = larger(y[i], x[pool * i + j]);
    }
  }
}

}  // namespace

const BlockTailPasses BIE_PASS_SET::block_tail_passes = {channel, row, keep_larger, pool_rows};

}  // namespace bie::kernels::cpu
