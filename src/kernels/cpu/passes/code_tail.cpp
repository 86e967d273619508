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

}  // namespace

const CodeTailPasses BIE_PASS_SET::code_tail_passes = {codes, signs, plane_signs, row_signs, keep_larger, pool_pairs};

}  // namespace bie::kernels::cpu
