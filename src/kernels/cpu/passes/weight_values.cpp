#include "kernels/arithmetic/weight_values.h"

#include "kernels/arithmetic/codes.h"
#include "kernels/arithmetic/diode_mix.h"
#include "kernels/arithmetic/float_bits.h"
#include "kernels/arithmetic/random.h"
#include "kernels/cpu/passes.h"
#include "kernels/cpu/passes/chunks.h"

namespace bie::kernels::cpu {
namespace {

void codes(const std::uint32_t* low, const std::uint32_t* high, int bit, int bits, std::int64_t count,
           std::int32_t* to) {
  const std::uint32_t mask = (1u << bits) - 1;
  if (high == nullptr) {
    for (std::int64_t j = 0; j < count; ++j) to[j] = static_cast<std::int32_t>(low[j] >> bit & mask);
  } else {
    const int rest = 32 - bit;  // 1 ... 7
    for (std::int64_t j = 0; j < count; ++j)
      to[j] = static_cast<std::int32_t>((low[j] >> bit | high[j] << rest) & mask);
  }
}

void put(const std::int32_t* from, int bit, int bits, std::int64_t count, std::uint32_t* low, std::uint32_t* high) {
  const std::uint32_t mask = (1u << bits) - 1;
  for (std::int64_t j = 0; j < count; ++j)
    low[j] = (low[j] & ~(mask << bit)) | static_cast<std::uint32_t>(from[j]) << bit;
  if (high == nullptr) return;
  const int rest = 32 - bit;
  for (std::int64_t j = 0; j < count; ++j)
    high[j] = (high[j] & ~(mask >> rest)) | static_cast<std::uint32_t>(from[j]) >> rest;
}

template <Offset offset>
void values_of(const std::int32_t* from, const GroupNumbers& n, std::int64_t count, float* w) {
  for (std::int64_t j = 0; j < count; ++j)
    w[j] = weight_value(offset, static_cast<float>(from[j]), n.scale[j], n.zero[j], n.middle);
}

template <Offset offset>
void positions_of(const float* w, const GroupNumbers& n, std::int64_t count, float* v) {
  for (std::int64_t j = 0; j < count; ++j) v[j] = code_position(offset, w[j], n.scale[j], n.zero[j], n.middle);
}

void values(const std::int32_t* from, Offset offset, const GroupNumbers& n, std::int64_t count, float* w) {
  switch (offset) {
    case Offset::none: return values_of<Offset::none>(from, n, count, w);
    case Offset::value: return values_of<Offset::value>(from, n, count, w);
    case Offset::zero: return values_of<Offset::zero>(from, n, count, w);
  }
}

void positions(const float* w, Offset offset, const GroupNumbers& n, std::int64_t count, float* v) {
  switch (offset) {
    case Offset::none: return positions_of<Offset::none>(w, n, count, v);
    case Offset::value: return positions_of<Offset::value>(w, n, count, v);
    case Offset::zero: return positions_of<Offset::zero>(w, n, count, v);
  }
}

void nearest(const float* v, float top, std::int64_t count, std::int32_t* to) {
  for (std::int64_t j = 0; j < count; ++j) to[j] = static_cast<std::int32_t>(round_clamped(v[j], 0, top));
}

/// Random numbers have a loop of their own, because a loop over several widths becomes no vectors.
void at_random(const float* v, float lowest, float top, std::uint64_t random, std::int64_t first, std::int64_t count,
               std::int32_t* to) {
  for_chunks(0, count, [&](std::int64_t at, std::int64_t n) {
    std::int32_t uniforms[chunk];
    for (std::int64_t j = 0; j < n; ++j)
      uniforms[j] = static_cast<std::int32_t>(random_bits(random, first + at + j) >> 40);
    for (std::int64_t j = 0; j < n; ++j)
      to[at + j] = rounded_at_random(v[at + j], lowest, top, static_cast<float>(uniforms[j]) * 0x1p-24f);
  });
}

void directions(const void* grad, Dtype grad_dtype, void* l, void* s, Dtype moments, const AdamNumbers& numbers,
                std::uint64_t random, std::int64_t first, std::int64_t count, float* u) {
  const AdamNumbers o = numbers;
  for_chunks(first, count, [&](std::int64_t at, std::int64_t n) {
    Floats wide_g, wide_l, wide_s;
    const float* const g = widened(grad, grad_dtype, at, n, wide_g);
    float* const to = u + (at - first);
    if (l == nullptr) {
      for (std::int64_t j = 0; j < n; ++j) to[j] = g[j];
      return;
    }
    auto* const a = const_cast<float*>(widened(l, moments, at, n, wide_l));
    auto* const b = const_cast<float*>(widened(s, moments, at, n, wide_s));
    for (std::int64_t j = 0; j < n; ++j) to[j] = adam_direction(o, g[j], &a[j], &b[j]);
    if (moments == Dtype::f32) return;
    auto *const l16 = static_cast<std::uint16_t*>(l) + at, *const s16 = static_cast<std::uint16_t*>(s) + at;
    for (std::int64_t j = 0; j < n; ++j) {
      const std::uint64_t bits = random_bits(random, at + j);
      l16[j] = bf16_at_random(a[j], static_cast<std::uint32_t>(bits));
      s16[j] = bf16_at_random(b[j], static_cast<std::uint32_t>(bits >> 16));
    }
  });
}

void move(float* w, const float* u, const std::uint16_t* rest, const AdamNumbers& numbers, float rate,
          std::int64_t count) {
  const AdamNumbers o = numbers;
  if (rest != nullptr)
    for (std::int64_t j = 0; j < count; ++j) w[j] += float_from_bf16(rest[j]);
  for (std::int64_t j = 0; j < count; ++j) w[j] = stepped(o, rate, w[j], u[j]);
}

/// Keeps the rounding error of codes that were rounded to nearest. It is rounded at random, with the random bits that
/// stochastic rounding of the codes would have used.
void keep_rest(const float* w, const float* coded, std::uint64_t random, std::int64_t first, std::int64_t count,
               std::uint16_t* rest) {
  for (std::int64_t j = 0; j < count; ++j)
    rest[j] = bf16_at_random(w[j] - coded[j], static_cast<std::uint32_t>(random_bits(random, first + j) >> 48));
}

void add(const float* x, std::int64_t count, float* sum) {
  for (std::int64_t j = 0; j < count; ++j) sum[j] += x[j];
}

}  // namespace

const WeightValuesPasses BIE_PASS_SET::weight_values_passes = {codes,     put,        values, positions, nearest,
                                                               at_random, directions, move,   keep_rest, add};

}  // namespace bie::kernels::cpu
