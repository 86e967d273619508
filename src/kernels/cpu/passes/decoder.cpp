// Lanes are partial sums, or positions: the order of every sum is the written one whatever the vectors are.
#include <algorithm>
#include <cmath>

#include "kernels/arithmetic/exponential.h"
#include "kernels/arithmetic/hyperbolic_tangent.h"
#include "kernels/cpu/attention/decoder_passes.h"

namespace bie::kernels::cpu {
namespace {

constexpr int partial_sums = 64;

/// Adds the partial sums [64][lanes] in halves; the total stands in the first.
template <int lanes>
void add_halves(float (*t)[lanes]) {
  for (int d = partial_sums / 2; d > 0; d /= 2)
    for (int l = 0; l < d; ++l)
      for (int j = 0; j < lanes; ++j) t[l][j] = t[l][j] + t[l + d][j];
}

float total(float (&t)[partial_sums]) {
  for (int d = partial_sums / 2; d > 0; d /= 2)
    for (int l = 0; l < d; ++l) t[l] = t[l] + t[l + d];
  return t[0];
}

float sum_of_squares(const float* x, std::int64_t size) {
  float t[partial_sums] = {};
  std::int64_t i = 0;
  for (; i + partial_sums <= size; i += partial_sums)
    for (int l = 0; l < partial_sums; ++l) t[l] = __builtin_fmaf(x[i + l], x[i + l], t[l]);
  for (int l = 0; i < size; ++i, ++l) t[l] = __builtin_fmaf(x[i], x[i], t[l]);
  return total(t);
}

/// y[i] = of(i), where y may be what `of` reads: parts go through memory of their own, so that they become vectors.
template <class Of>
void in_parts(std::int64_t count, float* y, const Of& of) {
  constexpr std::int64_t part = 64;
  float values[part];
  std::int64_t first = 0;
  for (; first + part <= count; first += part) {
    for (std::int64_t i = 0; i < part; ++i) values[i] = of(first + i);
    for (std::int64_t i = 0; i < part; ++i) y[first + i] = values[i];
  }
  for (; first < count; ++first) y[first] = of(first);
}

void rms_norm(const float* x, const float* w, float eps, std::int64_t size, float* y) {
  const float r = 1.0f / std::sqrt(sum_of_squares(x, size) / static_cast<float>(size) + eps);
  in_parts(size, y, [=](std::int64_t i) { return (x[i] * r) * w[i]; });
}

void rotate(std::int64_t pairs, bool neighbours, const float* cosine, const float* sine, float* x) {
  const std::int64_t step = neighbours ? 2 : 1, apart = neighbours ? 1 : pairs;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float a = x[i * step], b = x[i * step + apart];
    x[i * step] = __builtin_fmaf(a, cosine[i], -(b * sine[i]));
    x[i * step + apart] = __builtin_fmaf(a, sine[i], b * cosine[i]);
  }
}

void silu_gate(std::int64_t count, const float* g, const float* u, float* y) {
  in_parts(count, y, [=](std::int64_t i) { return g[i] / (1.0f + exponential(-g[i])) * u[i]; });
}

void gelu_gate(std::int64_t count, const float* g, const float* u, float* y) {
  in_parts(count, y, [=](std::int64_t i) {
    const float z = g[i] * __builtin_fmaf(gelu_cubic, g[i] * g[i], gelu_linear);
    return g[i] / (1.0f + exponential(-z)) * u[i];
  });
}

void relu2_gate(std::int64_t count, const float* g, const float* u, float* y) {
  in_parts(count, y, [=](std::int64_t i) {
    const float r = g[i] < 0.0f ? 0.0f : g[i];
    return (r * r) * u[i];
  });
}

/// Not inlined, so that attention without caps has the registers it would have anyway.
[[gnu::noinline]] void soft_cap(std::int64_t count, float cap, float* x) {
  for (std::int64_t i = 0; i < count; ++i) x[i] = soft_capped(x[i], cap);
}

void add(std::int64_t count, const float* y, float* x) {
  for (std::int64_t i = 0; i < count; ++i) x[i] = x[i] + y[i];
}

constexpr int lanes = 16;  // positions whose scores are summed at once

/// s(j) of all positions of a block, those that nobody wrote included.
void scores(const float* query, const float* keys, std::int64_t size, float scale, float* s) {
  for (std::int64_t first = 0; first < attention_block; first += lanes) {
    float t[partial_sums][lanes] = {};
    for (std::int64_t i = 0; i < size; ++i) {
      const float q = query[i];
      const float* const k = keys + i * attention_block + first;
      float* const sum = t[i % partial_sums];
      for (int j = 0; j < lanes; ++j) sum[j] = __builtin_fmaf(q, k[j], sum[j]);
    }
    add_halves<lanes>(t);
    for (int j = 0; j < lanes; ++j) s[first + j] = t[0][j] * scale;
  }
}

/// The larger one, NaN where either is.
float larger(float a, float b) { return b > a || b != b ? b : a; }

/// float16 as float32. Both have the same fields, so a product moves the exponent; infinity and NaN keep theirs.
void widen(const std::uint16_t* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t h = from[i], magnitude = (h & 0x7fffu) << 13, sign = (h & 0x8000u) << 16;
    const std::uint32_t finite = bits_from_float(float_from_bits(magnitude) * 0x1p112f);
    to[i] = float_from_bits(((h & 0x7c00u) == 0x7c00u ? magnitude | 0x7f800000u : finite) | sign);
  }
}

void scores_f16(const float* query, const std::uint16_t* keys, std::int64_t size, float scale, float* memory,
                float* s) {
  widen(keys, size * attention_block, memory);
  scores(query, memory, size, scale, s);
}

/// Keys of a KV head in a block, and behind them its values, as float32.
const float* numbers(const void* block, std::int64_t at, std::int64_t, float*, float) {
  return static_cast<const float*>(block) + at;
}
const float* numbers(const void* block, std::int64_t at, std::int64_t size, float* memory, std::uint16_t) {
  widen(static_cast<const std::uint16_t*>(block) + at, 2 * size * attention_block, memory);
  return memory;
}

/// Running state of the online softmax over the blocks joined so far.
struct Joined {
  float m, l;
  float* o;
};

void join(const Joined& next, std::int64_t size, Joined* to) {
  const float n = larger(to->m, next.m), g = exponential(to->m - n), f = exponential(next.m - n);
  to->l = __builtin_fmaf(f, next.l, g * to->l);
  for (std::int64_t c = 0; c < size; ++c) to->o[c] = __builtin_fmaf(f, next.o[c], g * to->o[c]);
  to->m = n;
}

template <class Number>
void attention(const AttentionShape& shape, const AttentionRow& row, std::int64_t head, std::int64_t at,
               float* memory) {
  const std::int64_t size = shape.head_size;
  Joined all{0, 0, memory}, later{0, 0, memory + size}, block{0, 0, memory + 2 * size};
  Joined* segment = &all;  // the first one is what others are joined to
  const std::int64_t first = row.first / attention_block, last = row.last / attention_block;
  for (std::int64_t b = first; b <= last; ++b) {
    const float* const keys = numbers(row.blocks[b], at, size, block.o + size, Number());
    const float* const values = keys + size * attention_block;
    const std::int64_t from = std::max(row.first - b * attention_block, std::int64_t{0}),
                       to = std::min(row.last - b * attention_block, attention_block - 1);
    const bool begins = b == first || b % attention_segment == 0;
    if (begins && b != first) segment = &later;
    Joined& into = begins ? *segment : block;
    float p[attention_block];
    scores(row.query + head * size, keys, size, shape.scale, p);
    if (shape.cap > 0) soft_cap(attention_block, shape.cap, p);
    into.m = p[from];
    for (std::int64_t j = from + 1; j <= to; ++j) into.m = larger(into.m, p[j]);
    for (std::int64_t j = 0; j < attention_block; ++j) p[j] = exponential(p[j] - into.m);
    for (std::int64_t j = 0; j < from; ++j) p[j] = 0;
    for (std::int64_t j = to + 1; j < attention_block; ++j) p[j] = 0;
    float* const o = into.o;
    for (std::int64_t c = 0; c < size; ++c) o[c] = 0;
    for (std::int64_t j = from; j <= to; ++j) {
      const float by = p[j];
      const float* const v = values + j * size;
      for (std::int64_t c = 0; c < size; ++c) o[c] = __builtin_fmaf(by, v[c], o[c]);
    }
    into.l = total(p);
    if (!begins) join(block, size, segment);
    if (segment == &later && (b == last || b % attention_segment == attention_segment - 1)) join(later, size, &all);
  }
  float* const result = row.result + head * size;
  for (std::int64_t c = 0; c < size; ++c) result[c] = all.o[c] / all.l;
}

}  // namespace

const DecoderPasses BIE_PASS_SET::decoder_passes = {
    rms_norm,  rotate, silu_gate, gelu_gate, relu2_gate, add, soft_cap, attention<float>, attention<std::uint16_t>,
    scores_f16};

}  // namespace bie::kernels::cpu
