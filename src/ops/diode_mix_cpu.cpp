// The steps of DiodeMix on the CPU: one pass over a parameter, its gradient and its moments.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "ops/diode_mix_step.h"
#include "ops/torch_parallel.h"
#include "ops/vector_clones.h"

namespace bie::ops {
namespace {

constexpr std::int64_t grain = 1 << 14;

template <class M>
M stored(float value, std::uint32_t random) {
  if constexpr (std::is_same_v<M, float>) {
    return value;
  } else {  // bfloat16 is a float32 without its low 16 bits: add a random number below them and cut
    if (!std::isfinite(value)) return c10::BFloat16(value);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    return c10::BFloat16(static_cast<std::uint16_t>((bits + (random & 0xffffu)) >> 16), c10::BFloat16::from_bits());
  }
}

// A step goes through its parameter in chunks that stay in the first-level cache: each is widened to float32 where it
// is not, moved by passes that the compiler makes vectors of, and narrowed again.
constexpr std::int64_t chunk = 256;
using Floats = float[chunk];

template <class T>
float* widened(T* from, std::int64_t count, Floats& buffer) {
  if constexpr (std::is_same_v<T, float>) {
    return from;
  } else {
    std::copy_n(from, count, buffer);
    return buffer;
  }
}

template <class T>
const float* widened(const T* from, std::int64_t count, Floats& buffer) {
  if constexpr (std::is_same_v<T, float>) {
    return from;
  } else {
    std::copy_n(from, count, buffer);
    return buffer;
  }
}

BIE_VECTOR_CLONES void adam_pass(float* w, float* l, float* s, const float* g, std::int64_t count, Adam adam) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float a = adam.b1 * l[i] + adam.d1 * g[i];
    const float b = adam.b2 * s[i] + adam.d2 * g[i] * g[i];
    const float p = w[i] - adam.rate * a / (std::sqrt(b) + adam.eps);
    l[i] = a;
    s[i] = b;
    w[i] = p - adam.decay * p;
  }
}

/// v = clamp(w / scale, lo, hi) goes to the code below it or, with the probability of its distance to that, to the one
/// above.
BIE_VECTOR_CLONES void round_pass(std::int8_t* q, const float* w, std::int64_t count, float scale, float lo, float hi,
                                  const Stream& stream, std::int64_t first) {
  std::int32_t random[chunk], codes[chunk];
  for (std::int64_t i = 0; i < count; ++i) random[i] = static_cast<std::int32_t>(stream.bits(first + i) >> 40);
  for (std::int64_t i = 0; i < count; ++i) {
    const float u = static_cast<float>(random[i]) * 0x1p-24f;
    const float v = w[i] / scale, above = v > lo ? v : lo, clamped = above < hi ? above : hi;
    const std::int32_t cut = static_cast<std::int32_t>(clamped);  // towards 0
    const std::int32_t below = cut - (static_cast<float>(cut) > clamped ? 1 : 0);
    codes[i] = below + (u >= 1 - (clamped - static_cast<float>(below)) ? 1 : 0);
  }
  for (std::int64_t i = 0; i < count; ++i) q[i] = static_cast<std::int8_t>(codes[i]);
}

/// l = lerp(l, g, d1), s = lerp(s, lr * sgn(l), d2).
BIE_VECTOR_CLONES void vote_pass(float* l, float* s, const float* g, std::int64_t count, float d1, float d2, float lr) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float a = l[i] + d1 * (g[i] - l[i]);
    const float vote = (a > 0 ? lr : 0.0f) - (a < 0 ? lr : 0.0f);
    l[i] = a;
    s[i] += d2 * (vote - s[i]);
  }
}

/// Gives every weight the sign of -sgn(s); 0 counts as +1.
BIE_VECTOR_CLONES void sign_pass(std::int8_t* w, const float* s, std::int64_t count) {
  std::int32_t negative[chunk];
  for (std::int64_t i = 0; i < count; ++i) negative[i] = s[i] > 0 ? -1 : 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t value = w[i], magnitude = value < 0 ? -value : value;
    const std::int32_t moved = (magnitude ^ negative[i]) - negative[i];
    w[i] = static_cast<std::int8_t>(moved > 127 ? 127 : moved);
  }
}

/// A chunk of a parameter: its place, its moments and its gradient as float32.
struct Chunk {
  std::int64_t first, count;
  float *l, *s;
  const float* g;
};

/// Calls body with every chunk and keeps the moments that it leaves.
template <class G, class M, class Body>
void in_chunks(std::int64_t size, const G* g, M* l, M* s, const Stream& stream, const Body& body) {
  kernels::parallel_for(torch_parallel(), size, grain, [&](std::int64_t begin, std::int64_t end) {
    Floats wide_l, wide_s, wide_g;
    for (std::int64_t at = begin; at < end; at += chunk) {
      const std::int64_t n = std::min(chunk, end - at);
      const Chunk c{at, n, widened(l + at, n, wide_l), widened(s + at, n, wide_s), widened(g + at, n, wide_g)};
      body(c);
      if constexpr (!std::is_same_v<M, float>)
        for (std::int64_t i = 0; i < n; ++i) {
          const std::uint64_t random = stream.bits(at + i);
          l[at + i] = stored<M>(c.l[i], static_cast<std::uint32_t>(random));
          s[at + i] = stored<M>(c.s[i], static_cast<std::uint32_t>(random >> 16));
        }
    }
  });
}

template <class P, class M>
void step_float(P* p, const P* g, std::int64_t count, M* l, M* s, const Adam& adam, const Stream& stream) {
  in_chunks(count, g, l, s, stream, [&](const Chunk& c) {
    Floats wide;
    float* const w = widened(p + c.first, c.count, wide);
    adam_pass(w, c.l, c.s, c.g, c.count, adam);
    if constexpr (!std::is_same_v<P, float>) std::copy_n(w, c.count, p + c.first);
  });
}

template <class G, class M>
void step_codes(std::int8_t* q, const G* g, std::int64_t count, M* l, M* s, float scale, float next_scale, int bits,
                const Adam& adam, const Stream& stream) {
  const float hi = static_cast<float>((1 << (bits - 1)) - 1), lo = -hi - 1;
  in_chunks(count, g, l, s, stream, [&](const Chunk& c) {
    Floats w;
    for (std::int64_t i = 0; i < c.count; ++i) w[i] = static_cast<float>(q[c.first + i]) * scale;
    adam_pass(w, c.l, c.s, c.g, c.count, adam);
    round_pass(q + c.first, w, c.count, next_scale, lo, hi, stream, c.first);
  });
}

template <class G, class M>
void step_binary(std::int8_t* w, const G* g, std::int64_t count, M* l, M* s, const Lerps& o, const Stream& stream) {
  in_chunks(count, g, l, s, stream, [&](const Chunk& c) {
    vote_pass(c.l, c.s, c.g, c.count, o.d1, o.d2, o.lr);
    sign_pass(w + c.first, c.s, c.count);
  });
}

/// The scale that codes of this mean would start with.
float renewed_scale(const at::Tensor& codes, float scale, std::int64_t bits) {
  const std::int8_t* q = codes.const_data_ptr<std::int8_t>();
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < codes.numel(); ++i) sum += std::abs(static_cast<int>(q[i]));
  const double mean = static_cast<double>(sum) / static_cast<double>(codes.numel()) * scale;
  const float next = static_cast<float>(mean_to_step(bits) * mean);
  return next > 0 ? next : scale;
}

template <class Body>
void with_moments(const at::Tensor& l, const at::Tensor& s, const Body& body) {
  if (l.scalar_type() == at::kFloat)
    body(l.mutable_data_ptr<float>(), s.mutable_data_ptr<float>());
  else
    body(l.mutable_data_ptr<c10::BFloat16>(), s.mutable_data_ptr<c10::BFloat16>());
}

/// An integer weight's gradient is int8 or float.
template <class Body>
void with_gradient(const DiodeMixItem& item, const Body& body) {
  const at::Tensor same = gradient_in_order(item);
  if (same.scalar_type() == at::kChar)
    body(same.const_data_ptr<std::int8_t>());
  else
    body(same.const_data_ptr<float>());
}

}  // namespace

void step_floats_cpu(const DiodeMixItem& item, const DiodeMixStep& o) {
  const auto step = [&]<class P>(P* data) {
    const at::Tensor same = gradient_in_order(item);
    with_moments(item.exp_avg_l, item.exp_avg_s, [&](auto* l, auto* s) {
      step_float(data, same.const_data_ptr<P>(), item.param.numel(), l, s, Adam(o, item.step), stream_of(item, o));
    });
  };
  switch (item.param.scalar_type()) {
    case at::kBFloat16: return step(item.param.mutable_data_ptr<c10::BFloat16>());
    case at::kHalf: return step(item.param.mutable_data_ptr<c10::Half>());
    default: return step(item.param.mutable_data_ptr<float>());
  }
}

void step_codes_cpu(const DiodeMixItem& item, const DiodeMixStep& o) {
  const float scale = scale_of("diode_mix_codes_", "scale_w", item.scale_w, item.param.device()).value;
  const float next = item.renew_scale ? renewed_scale(item.param, scale, item.bits) : scale;
  with_gradient(item, [&](const auto* g) {
    with_moments(item.exp_avg_l, item.exp_avg_s, [&](auto* l, auto* s) {
      step_codes(item.param.mutable_data_ptr<std::int8_t>(), g, item.param.numel(), l, s, scale, next,
                 static_cast<int>(item.bits), Adam(o, item.step), stream_of(item, o));
    });
  });
  if (item.renew_scale) item.scale_w.fill_(next);
}

void step_signs_cpu(const DiodeMixItem& item, const DiodeMixStep& o) {
  with_gradient(item, [&](const auto* g) {
    with_moments(item.exp_avg_l, item.exp_avg_s, [&](auto* l, auto* s) {
      step_binary(item.param.mutable_data_ptr<std::int8_t>(), g, item.param.numel(), l, s, Lerps(o),
                  stream_of(item, o));
    });
  });
}

}  // namespace bie::ops
