#include <cmath>
#include <limits>

#include "kernels/arithmetic/exponential.h"
#include "kernels/cpu/attention/attention_q8.h"

namespace bie::kernels::cpu {
namespace {

constexpr float whole = 0x1.8p23f;  // added and subtracted, it leaves the nearest whole number, half to even

/// max |x|, by bits, which rise as magnitudes do; NaN is above infinity.
std::int32_t largest_bits(const float* x, std::int64_t size) {
  std::int32_t most = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    const auto bits = static_cast<std::int32_t>(bits_from_float(x[i]) & 0x7fffffff);
    most = bits > most ? bits : most;
  }
  return most;
}

float codes(const float* x, std::int64_t size, std::int8_t* u) {
  const std::int32_t most = largest_bits(x, size);
  const bool is_finite = most < 0x7f800000;
  const float a = float_from_bits(static_cast<std::uint32_t>(most));
  if (!is_finite || a < 0x1p-100f) {
    for (std::int64_t i = 0; i < size; ++i) u[i] = 0;
    return is_finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  }
  const float r = 127.0f / a;
  for (std::int64_t i = 0; i < size; ++i) {
    const float near = x[i] * r + whole;
    u[i] = static_cast<std::int8_t>(bits_from_float(near) - bits_from_float(whole));
  }
  return a / 127.0f;
}

void spread_codes(const float* x, const Q8Groups& groups, bool is_key, float* v, std::int8_t* u, float* steps) {
  for (int g = 0; g < groups.count; ++g) {
    const int n = groups.size[g];
    for (int i = 0; i < n; ++i) v[i] = x[i];
    for (int h = 1; h < n; h *= 2)
      for (int i = 0; i < n; i += 2 * h)
        for (int j = i; j < i + h; ++j) {
          const float a = v[j], b = v[j + h];
          v[j] = a + b;
          v[j + h] = a - b;
        }
    const float by = 1.0f / static_cast<float>(n);
    if (is_key)
      for (int i = 0; i < n; ++i) v[i] = v[i] * by;
    steps[g] = codes(v, n, u);
    x += n;
    u += n;
  }
}

float total(float (&t)[attention_block]) {
  for (int d = attention_block / 2; d > 0; d /= 2)
    for (int l = 0; l < d; ++l) t[l] = t[l] + t[l + d];
  return t[0];
}

/// NaN where any element is. NaN is looked for beside the maximum, which so is one instruction a vector.
float largest(const float* x) {
  constexpr int lanes = 16;  // maxima side by side
  float most[lanes];
  std::int32_t odd[lanes] = {};
  for (int l = 0; l < lanes; ++l) most[l] = x[l];
  for (int j = 0; j < attention_block; j += lanes)
    for (int l = 0; l < lanes; ++l) {
      most[l] = x[j + l] > most[l] ? x[j + l] : most[l];
      odd[l] |= static_cast<std::int32_t>(x[j + l] != x[j + l]);
    }
  for (int d = lanes / 2; d > 0; d /= 2)
    for (int l = 0; l < d; ++l) {
      most[l] = most[l + d] > most[l] ? most[l + d] : most[l];
      odd[l] |= odd[l + d];
    }
  return odd[0] != 0 ? std::numeric_limits<float>::quiet_NaN() : most[0];
}

/// Positions that are not seen get a number.
void fill_unseen(float* x, std::int64_t from, std::int64_t to, float with) {
  for (std::int64_t j = 0; j < from; ++j) x[j] = with;
  for (std::int64_t j = to + 1; j < attention_block; ++j) x[j] = with;
}

void scores(const std::int32_t* products, const float* key_steps, const float* query_steps, int groups, float scale,
            float* to) {
  float s[attention_block] = {};
  for (int g = 0; g < groups; ++g, products += attention_block, key_steps += attention_block)
    for (int j = 0; j < attention_block; ++j)
      s[j] = __builtin_fmaf(static_cast<float>(products[j]), key_steps[j] * query_steps[g], s[j]);
  for (int j = 0; j < attention_block; ++j) to[j] = s[j] * scale;
}

void weights(float* s, const float* value_steps, std::int64_t from, std::int64_t to, Q8Weights* result) {
  float p[attention_block], w[attention_block];
  fill_unseen(s, from, to, -std::numeric_limits<float>::infinity());
  const float m = largest(s);
  for (int j = 0; j < attention_block; ++j) {
    p[j] = exponential(s[j] - m);
    w[j] = p[j] * value_steps[j];
  }
  fill_unseen(p, from, to, 0);
  fill_unseen(w, from, to, 0);
  const float b = largest(w);
  const float r = b >= 0x1p-100f ? 127.0f / b : 0.0f;
  if (r == 0)
    for (float& weight : w) weight = 0;
  for (int j = 0; j < attention_block; ++j) {
    const float near = w[j] * r + whole;
    result->u[j] = static_cast<std::uint8_t>(bits_from_float(near) - bits_from_float(whole));
  }
  result->m = m;
  result->b = b;
  result->l = total(p);
}

void open(const std::int32_t* sums, std::int64_t size, float b, float* o) {
  const float by = b / 127.0f;
  for (std::int64_t c = 0; c < size; ++c) o[c] = static_cast<float>(sums[c]) * by;
}

void join(const float* o, float f, float g, std::int64_t size, float* all) {
  for (std::int64_t c = 0; c < size; ++c) all[c] = __builtin_fmaf(f, o[c], g * all[c]);
}

void divide(const float* all, float l, std::int64_t size, float* result) {
  for (std::int64_t c = 0; c < size; ++c) result[c] = all[c] / l;
}

}  // namespace

const AttentionQ8Passes BIE_PASS_SET::attention_q8_passes = {spread_codes, codes, scores, weights, open, join, divide};

}  // namespace bie::kernels::cpu
