#include "kernels/arithmetic/codes.h"
#include "kernels/arithmetic/float_bits.h"
#include "kernels/cpu/passes.h"

namespace bie::kernels::cpu {
namespace {

/// Infinity and NaN, whose exponents are the largest.
std::uint32_t past_all_numbers(float v) { return (bits_from_float(v) & 0x7fffffffu) >= 0x7f800000u ? 1 : 0; }

bool codes(const float* v, float bias, const float* biases, float step, float lo, float hi, std::int64_t count,
           std::int8_t* y) {
  std::uint32_t bad = 0;
  if (biases == nullptr)
    for (std::int64_t i = 0; i < count; ++i) {
      const float xs = v[i] + bias;
      bad |= past_all_numbers(xs);
      y[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(round_clamped(xs / step, lo, hi)));
    }
  else
    for (std::int64_t i = 0; i < count; ++i) {
      const float xs = v[i] + biases[i];
      bad |= past_all_numbers(xs);
      y[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(round_clamped(xs / step, lo, hi)));
    }
  return bad == 0;
}

bool signs(const float* v, float bias, const float* biases, std::int64_t count, std::int8_t* y) {
  std::uint32_t bad = 0;
  if (biases == nullptr)
    for (std::int64_t i = 0; i < count; ++i) {
      const float xs = v[i] + bias;
      bad |= past_all_numbers(xs);
      y[i] = xs >= 0 ? 1 : -1;
    }
  else
    for (std::int64_t i = 0; i < count; ++i) {
      const float xs = v[i] + biases[i];
      bad |= past_all_numbers(xs);
      y[i] = xs >= 0 ? 1 : -1;
    }
  return bad == 0;
}

void plane_signs(const std::int32_t* acc, std::int32_t t, bool flip, std::int64_t count, std::int8_t* y) {
  const int above = flip ? -1 : 1;
  for (std::int64_t i = 0; i < count; ++i) y[i] = static_cast<std::int8_t>(acc[i] >= t ? above : -above);
}

void row_signs(const std::int32_t* acc, const std::int32_t* t, const std::uint8_t* flip, std::int64_t count,
               std::int8_t* y) {
  for (std::int64_t i = 0; i < count; ++i) {
    const int above = 1 - 2 * flip[i];
    y[i] = static_cast<std::int8_t>(acc[i] >= t[i] ? above : -above);
  }
}

void keep_larger(const std::int8_t* x, std::int64_t count, std::int8_t* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] > y[i] ? x[i] : y[i];
}

void pool_pairs(const std::int8_t* x, std::int64_t count, std::int8_t* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[2 * i] > x[2 * i + 1] ? x[2 * i] : x[2 * i + 1];
}

void keep_above(const float* x, std::int64_t count, float* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] > y[i] ? x[i] : y[i];
}

bool tail_rows(const TailArgs& a) {
  constexpr int most = 64;
  float ones[most], nothing[most], v[most];
  for (int c = 0; c < most; ++c) ones[c] = 1, nothing[c] = -0.0f;
  const float *const scale = a.scale == nullptr ? ones : a.scale, *const shift = a.shift == nullptr ? nothing : a.shift;
  const float* const sum_bias = a.sum_bias == nullptr ? nothing : a.sum_bias;
  bool finite = true;
  for (std::int64_t r = 0; r < a.rows; ++r) {
    if (a.sums != nullptr)
      for (int c = 0; c < a.columns; ++c) v[c] = a.sums[r * a.acc_stride + c] + sum_bias[c];
    else
      for (int c = 0; c < a.columns; ++c) v[c] = static_cast<float>(a.acc[r * a.acc_stride + c]) * a.y_scale;
    float* const to = a.v == nullptr ? v : a.v + r * a.stride;
    BIE_PASS_SET::block_tail_passes.row(v, scale, shift, a.add == nullptr ? nullptr : a.add + r * a.stride,
                                        {a.slope, a.cuts}, a.columns, to);
    if (a.codes == nullptr) continue;
    std::int8_t* const y = a.codes + r * a.stride;
    const bool fine =
        a.signs ? signs(to, 0, a.bias, a.columns, y)
                : codes(to, 0, a.bias, a.step, static_cast<float>(a.lo), static_cast<float>(a.hi), a.columns, y);
    finite = fine && finite;
  }
  return finite;
}

}  // namespace

const CodeTailPasses BIE_PASS_SET::code_tail_passes = {codes,       signs,      plane_signs, row_signs,
                                                       keep_larger, pool_pairs, keep_above,  tail_rows};

}  // namespace bie::kernels::cpu
