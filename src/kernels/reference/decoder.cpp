// The definitions of decoder_rows and attention.
#include <cmath>
#include <vector>

#include "bie/kernels/exact_math.h"
#include "kernels/reference/reference.h"

namespace bie::kernels::reference {
namespace {

/// S of the products x(i) * y(i), or of x itself where y is null.
float sum(const float* x, const float* y, std::int64_t count) {
  float t[64] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    float& part = t[i % 64];
    part = y == nullptr ? part + x[i] : std::fma(x[i], y[i], part);
  }
  for (int d = 32; d > 0; d /= 2)
    for (int l = 0; l < d; ++l) t[l] = t[l] + t[l + d];
  return t[0];
}

void rms_norm(const RowVectors& v, const float* x, const float* w, float eps, float* y, const Parallel&) {
  for (std::int64_t row = 0; row < v.rows; ++row)
    for (std::int64_t i = 0; i < v.per_row; ++i) {
      const std::int64_t at = row * v.stride + i * v.size;
      const float r = 1 / std::sqrt(sum(x + at, x + at, v.size) / static_cast<float>(v.size) + eps);
      for (std::int64_t e = 0; e < v.size; ++e) y[at + e] = (x[at + e] * r) * w[e];
    }
}

void rotate(const RowVectors& v, std::int64_t pairs, bool neighbours, const float* cosine, const float* sine, float* x,
            const Parallel&) {
  for (std::int64_t row = 0; row < v.rows; ++row)
    for (std::int64_t i = 0; i < v.per_row; ++i)
      for (std::int64_t pair = 0; pair < pairs; ++pair) {
        float* const vector = x + row * v.stride + i * v.size;
        float& first = vector[neighbours ? 2 * pair : pair];
        float& second = vector[neighbours ? 2 * pair + 1 : pair + pairs];
        const float a = first, b = second, c = cosine[row * pairs + pair], s = sine[row * pairs + pair];
        first = std::fma(a, c, -(b * s));
        second = std::fma(a, s, b * c);
      }
}

void silu_gate(std::int64_t count, const float* g, const float* u, float* y, const Parallel&) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = g[i] / (1 + exact_exp(-g[i])) * u[i];
}

void gelu_gate(std::int64_t count, const float* g, const float* u, float* y, const Parallel&) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float z = g[i] * std::fma(gelu_cubic, g[i] * g[i], gelu_linear);
    y[i] = g[i] / (1 + exact_exp(-z)) * u[i];
  }
}

void relu2_gate(std::int64_t count, const float* g, const float* u, float* y, const Parallel&) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float r = g[i] < 0 ? 0 : g[i];
    y[i] = (r * r) * u[i];
  }
}

void soft_cap(std::int64_t count, float cap, float* x, const Parallel&) {
  for (std::int64_t i = 0; i < count; ++i) x[i] = cap * exact_tanh(x[i] / cap);
}

void add(std::int64_t count, const float* y, float* x, const Parallel&) {
  for (std::int64_t i = 0; i < count; ++i) x[i] = x[i] + y[i];
}

float larger(float a, float b) { return std::isnan(a) || std::isnan(b) ? std::nanf("") : b > a ? b : a; }

/// One block, or several that were joined.
struct Part {
  float m, l;
  std::vector<float> o;
};

Part joined(const Part& a, const Part& b) {
  const float n = larger(a.m, b.m), g = exact_exp(a.m - n), f = exact_exp(b.m - n);
  Part both{n, std::fma(f, b.l, g * a.l), a.o};
  for (std::size_t c = 0; c < a.o.size(); ++c) both.o[c] = std::fma(f, b.o[c], g * a.o[c]);
  return both;
}

/// Joins parts in ascending order.
Part joined(const std::vector<Part>& parts) {
  Part all = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) all = joined(all, parts[i]);
  return all;
}

template <Dtype dtype>
Status run_attention(const AttentionShape& s, const AttentionRow* rows, std::int64_t count, const Parallel&) {
  if (!is_sound(s) || count < 0) return Status::bad_shape;
  const auto size = static_cast<std::size_t>(s.head_size);
  for (std::int64_t r = 0; r < count; ++r)
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const AttentionRow& row = rows[r];
      std::vector<std::vector<Part>> segments;
      std::int64_t segment = -1;
      for (std::int64_t b = 0; 64 * b <= row.last; ++b) {
        if (64 * b + 63 < row.first) continue;
        const std::int64_t keys = h / (s.heads / s.kv_heads) * 2 * s.head_size * 64, values = keys + 64 * s.head_size;
        float score[64], p[64] = {}, m = -INFINITY;
        for (std::int64_t j = 0; j < 64; ++j) {
          if (64 * b + j < row.first || 64 * b + j > row.last) continue;
          std::vector<float> key;
          for (std::int64_t i = 0; i < s.head_size; ++i)
            key.push_back(load_float(row.blocks[b], dtype, keys + i * 64 + j));
          score[j] = sum(row.query + h * s.head_size, key.data(), s.head_size) * s.scale;
          if (s.cap > 0) score[j] = s.cap * exact_tanh(score[j] / s.cap);
          m = larger(m, score[j]);
        }
        std::vector<float> o(size, 0.0f);
        for (std::int64_t j = 0; j < 64; ++j) {
          if (64 * b + j < row.first || 64 * b + j > row.last) continue;
          p[j] = exact_exp(score[j] - m);
          for (std::size_t c = 0; c < size; ++c)
            o[c] = std::fma(
                p[j], load_float(row.blocks[b], dtype, values + j * s.head_size + static_cast<std::int64_t>(c)), o[c]);
        }
        if (b / 16 != segment) segments.emplace_back();
        segment = b / 16;
        segments.back().push_back({m, sum(p, nullptr, 64), o});
      }
      std::vector<Part> parts;
      parts.reserve(segments.size());
      for (const std::vector<Part>& blocks : segments) parts.push_back(joined(blocks));
      const Part all = joined(parts);
      for (std::size_t c = 0; c < size; ++c)
        row.result[h * s.head_size + static_cast<std::int64_t>(c)] = all.o[c] / all.l;
    }
  return Status::ok;
}

}  // namespace

const DecoderRowsKernel decoder_rows = {"decoder_rows_reference",
                                        Isa::reference,
                                        nullptr,
                                        rms_norm,
                                        rotate,
                                        silu_gate,
                                        gelu_gate,
                                        relu2_gate,
                                        add,
                                        soft_cap};
const AttentionKernel attention = {"attention_reference", Isa::reference, nullptr, run_attention<Dtype::f32>};
const AttentionKernel attention_f16 = {"attention_f16_reference", Isa::reference, nullptr, run_attention<Dtype::f16>};

}  // namespace bie::kernels::reference
