#include "kernels/arithmetic/diode_mix.h"

#include "kernels/arithmetic/random.h"
#include "kernels/cpu/passes.h"
#include "kernels/cpu/passes/chunks.h"

namespace bie::kernels::cpu {
namespace {

/// A chunk of a parameter: its moments, which are the arrays themselves where those are float32, and its gradient.
struct State {
  float *l, *s;
  const float* g;
};

float* moved(void* array, Dtype dtype, std::int64_t first, std::int64_t count, Floats& buffer) {
  return const_cast<float*>(widened(array, dtype, first, count, buffer));
}

/// Moments of bfloat16 are rounded at random, both with bits of one random number.
void keep_moments(const DiodeMixTensor& t, const State& state, std::int64_t first, std::int64_t count) {
  auto *l = static_cast<std::uint16_t*>(t.l) + first, *s = static_cast<std::uint16_t*>(t.s) + first;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t random = random_bits(t.random, first + i);
    l[i] = bf16_at_random(state.l[i], static_cast<std::uint32_t>(random));
    s[i] = bf16_at_random(state.s[i], static_cast<std::uint32_t>(random >> 16));
  }
}

/// Calls body(first, count, state) with every chunk and keeps the moments that it leaves.
template <class Body>
void in_chunks(const DiodeMixTensor& t, std::int64_t begin, std::int64_t size, Dtype grad, Dtype moments,
               const Body& body) {
  for_chunks(begin, size, [&](std::int64_t first, std::int64_t count) {
    Floats wide_l, wide_s, wide_g;
    const State state{moved(t.l, moments, first, count, wide_l), moved(t.s, moments, first, count, wide_s),
                      widened(t.grad, grad, first, count, wide_g)};
    body(first, count, state);
    if (moments != Dtype::f32) keep_moments(t, state, first, count);
  });
}

void adam_pass(float* w, const State& state, std::int64_t count, AdamNumbers o, float rate) {
  float *const l = state.l, *const s = state.s;
  const float* const g = state.g;
  for (std::int64_t i = 0; i < count; ++i) adam(o, rate, g[i], &w[i], &l[i], &s[i]);
}

/// Random numbers and codes have loops of their own, because a loop over several widths becomes no vectors.
void round_pass(std::int8_t* q, const float* w, std::int64_t count, float scale, float lo, float hi,
                std::uint64_t random, std::int64_t first) {
  std::int32_t uniforms[chunk], codes[chunk];
  for (std::int64_t i = 0; i < count; ++i)
    uniforms[i] = static_cast<std::int32_t>(random_bits(random, first + i) >> 40);
  for (std::int64_t i = 0; i < count; ++i)
    codes[i] = rounded_at_random(w[i] / scale, lo, hi, static_cast<float>(uniforms[i]) * 0x1p-24f);
  for (std::int64_t i = 0; i < count; ++i) q[i] = static_cast<std::int8_t>(codes[i]);
}

void vote_pass(const State& state, std::int64_t count, SignNumbers o) {
  float *const l = state.l, *const s = state.s;
  const float* const g = state.g;
  for (std::int64_t i = 0; i < count; ++i) sign_vote(o, g[i], &l[i], &s[i]);
}

void sign_pass(std::int8_t* w, const float* s, std::int64_t count) {
  std::int32_t negative[chunk];
  for (std::int64_t i = 0; i < count; ++i) negative[i] = s[i] > 0 ? -1 : 0;
  for (std::int64_t i = 0; i < count; ++i) w[i] = static_cast<std::int8_t>(with_sign(w[i], negative[i]));
}

void floats(const DiodeMixTensor& t, std::int64_t begin, std::int64_t size, Dtype param, Dtype moments,
            const AdamNumbers& o) {
  in_chunks(t, begin, size, param, moments, [&](std::int64_t first, std::int64_t count, const State& state) {
    Floats wide;
    float* const w = moved(t.param, param, first, count, wide);
    adam_pass(w, state, count, o, t.rate);
    narrowed(w, count, t.param, param, first);
  });
}

void codes(const DiodeMixTensor& t, std::int64_t begin, std::int64_t size, float scale, float next, Dtype grad,
           Dtype moments, const AdamNumbers& o) {
  auto* const q = static_cast<std::int8_t*>(t.param);
  const float hi = static_cast<float>((1 << (t.bits - 1)) - 1), lo = -hi - 1;
  in_chunks(t, begin, size, grad, moments, [&](std::int64_t first, std::int64_t count, const State& state) {
    Floats w;
    for (std::int64_t i = 0; i < count; ++i) w[i] = static_cast<float>(q[first + i]) * scale;
    adam_pass(w, state, count, o, t.rate);
    round_pass(q + first, w, count, next, lo, hi, t.random, first);
  });
}

void signs(const DiodeMixTensor& t, std::int64_t begin, std::int64_t size, Dtype grad, Dtype moments,
           const SignNumbers& o) {
  auto* const w = static_cast<std::int8_t*>(t.param);
  in_chunks(t, begin, size, grad, moments, [&](std::int64_t first, std::int64_t count, const State& state) {
    vote_pass(state, count, o);
    sign_pass(w + first, state.s, count);
  });
}

std::int64_t magnitudes(const std::int8_t* q, std::int64_t count) {
  std::int64_t total = 0;
  for_chunks(0, count, [&](std::int64_t first, std::int64_t n) {
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += q[first + i] < 0 ? -q[first + i] : q[first + i];
    total += sum;
  });
  return total;
}

void first_moments(const std::int8_t* w, std::int64_t begin, std::int64_t size, std::uint64_t random, void* moment,
                   Dtype dtype) {
  for_chunks(begin, size, [&](std::int64_t first, std::int64_t count) {
    Floats buffer;
    float* const to = wide_place(moment, dtype, first, buffer);
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = first_moment(w[first + i], uniform(random_bits(random, first + i)));
    narrowed(to, count, moment, dtype, first);
  });
}

}  // namespace

const DiodeMixPasses BIE_PASS_SET::diode_mix_passes = {floats, codes, signs, magnitudes, first_moments};

}  // namespace bie::kernels::cpu
