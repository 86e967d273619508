// The definition of attention_q8.
#include <algorithm>
#include <cmath>
#include <vector>

#include "bie/kernels/exact_math.h"
#include "kernels/reference/reference.h"

namespace bie::kernels::reference {
namespace {

struct Codes {
  std::vector<int> u;
  float d;
};

Codes codes_of(const std::vector<float>& v) {
  Codes c{std::vector<int>(v.size(), 0), 0};
  float a = 0;
  for (const float x : v) {
    if (!std::isfinite(x)) c.d = NAN;
    a = std::max(a, std::fabs(x));
  }
  if (std::isnan(c.d) || a < 0x1p-100f) return c;
  const float r = 127 / a;
  for (std::size_t i = 0; i < v.size(); ++i) c.u[i] = static_cast<int>(std::nearbyint(v[i] * r));
  c.d = a / 127;
  return c;
}

std::vector<std::int64_t> group_sizes(std::int64_t head_size) {
  std::vector<std::int64_t> sizes;
  for (const std::int64_t n : {32, 16})
    for (; head_size >= n; head_size -= n) sizes.push_back(n);
  return sizes;
}

std::vector<float> spread(std::vector<float> v) {
  for (std::size_t h = 1; h < v.size(); h *= 2)
    for (std::size_t i = 0; i < v.size(); ++i)
      if ((i & h) == 0) {
        const float a = v[i], b = v[i + h];
        v[i] = a + b;
        v[i + h] = a - b;
      }
  return v;
}

float larger(float a, float b) { return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b); }

float sum(const float* x) {
  float t[64];
  std::copy(x, x + 64, t);
  for (int d = 32; d > 0; d /= 2)
    for (int l = 0; l < d; ++l) t[l] = t[l] + t[l + d];
  return t[0];
}

/// One KV head of a block, by the layouts that attention_q8.h states. Keys of float16 have no groups.
struct Block {
  const std::int8_t* bytes;
  std::int64_t size, groups;

  int key(std::int64_t i, std::int64_t j) const { return bytes[(i / 4 * 64 + j) * 4 + i % 4]; }
  float key_step(std::int64_t g, std::int64_t j) const { return float_at(64 * size, g * 64 + j); }
  float half_key(std::int64_t i, std::int64_t j) const { return load_float(bytes, Dtype::f16, i * 64 + j); }
  int value(std::int64_t j, std::int64_t c) const { return bytes[key_bytes() + (j / 4 * size + c) * 4 + j % 4]; }
  float value_step(std::int64_t j) const { return float_at(key_bytes() + 64 * size, j); }
  std::int64_t all_bytes() const { return key_bytes() + 64 * size + 256; }

 private:
  std::int64_t key_bytes() const { return groups == 0 ? 128 * size : 64 * size + 256 * groups; }
  float float_at(std::int64_t offset, std::int64_t i) const { return load_float(bytes + offset, Dtype::f32, i); }
};

/// One query head over one block.
struct Seen {
  float m = 0, l = 0;
  std::vector<float> o;
};

/// The score of a position, of codes or of the query itself.
float score(const Block& block, const std::vector<Codes>& query, std::int64_t j) {
  float s = 0;
  std::int64_t i = 0;
  for (std::size_t g = 0; g < query.size(); ++g) {
    int product = 0;
    for (const int q : query[g].u) product += q * block.key(i++, j);
    s = std::fma(static_cast<float>(product), block.key_step(static_cast<std::int64_t>(g), j) * query[g].d, s);
  }
  return s;
}
float score(const Block& block, const float* query, std::int64_t j) {
  float parts[64] = {};
  for (std::int64_t i = 0; i < block.size; ++i) parts[i % 64] = std::fma(query[i], block.half_key(i, j), parts[i % 64]);
  return sum(parts);
}

template <class Query>
Seen of_block(const Block& block, const Query& query, const AttentionShape& shape, std::int64_t from, std::int64_t to) {
  float s[64] = {}, p[64] = {}, w[64] = {};
  Seen seen;
  for (std::int64_t j = from; j <= to; ++j) {
    s[j] = score(block, query, j) * shape.scale;
    if (shape.cap > 0) s[j] = shape.cap * exact_tanh(s[j] / shape.cap);
    seen.m = j == from ? s[j] : larger(seen.m, s[j]);
  }
  float b = 0;
  for (std::int64_t j = from; j <= to; ++j) {
    p[j] = exact_exp(s[j] - seen.m);
    w[j] = p[j] * block.value_step(j);
    b = j == from ? w[j] : larger(b, w[j]);
  }
  seen.l = sum(p);
  int u[64] = {};
  if (b >= 0x1p-100f)
    for (std::int64_t j = from; j <= to; ++j) u[j] = static_cast<int>(std::nearbyint(w[j] * (127 / b)));
  for (std::int64_t c = 0; c < block.size; ++c) {
    int products = 0;
    for (std::int64_t j = from; j <= to; ++j) products += u[j] * block.value(j, c);
    seen.o.push_back(static_cast<float>(products) * (b / 127));
  }
  return seen;
}

Seen joined(const Seen& a, const Seen& b) {
  const float n = larger(a.m, b.m), g = exact_exp(a.m - n), f = exact_exp(b.m - n);
  Seen both{n, std::fma(f, b.l, g * a.l), a.o};
  for (std::size_t c = 0; c < a.o.size(); ++c) both.o[c] = std::fma(f, b.o[c], g * a.o[c]);
  return both;
}

template <class Query>
void run_head(const AttentionShape& s, const AttentionRow& row, std::int64_t head, const Query& query,
              std::int64_t groups) {
  Seen all, segment;
  for (std::int64_t b = row.first / 64; b <= row.last / 64; ++b) {
    Block block{static_cast<const std::int8_t*>(row.blocks[b]), s.head_size, groups};
    block.bytes += head / (s.heads / s.kv_heads) * block.all_bytes();
    const Seen seen = of_block(block, query, s, std::max(row.first - 64 * b, std::int64_t{0}),
                               std::min(row.last - 64 * b, std::int64_t{63}));
    segment = b == row.first / 64 || b % 16 == 0 ? seen : joined(segment, seen);
    if (b % 16 == 15 || b == row.last / 64) all = b / 16 == row.first / 1024 ? segment : joined(all, segment);
  }
  for (std::size_t c = 0; c < all.o.size(); ++c)
    row.result[head * s.head_size + static_cast<std::int64_t>(c)] = all.o[c] / all.l;
}

Status run(const AttentionShape& s, const AttentionRow* rows, std::int64_t count, const Parallel&) {
  if (!takes_q8(s) || count < 0) return Status::bad_shape;
  const std::vector<std::int64_t> sizes = group_sizes(s.head_size);
  for (std::int64_t r = 0; r < count; ++r)
    for (std::int64_t h = 0; h < s.heads; ++h) {
      std::vector<Codes> query;
      const float* at = rows[r].query + h * s.head_size;
      for (const std::int64_t n : sizes) {
        query.push_back(codes_of(spread({at, at + n})));
        at += n;
      }
      run_head(s, rows[r], h, query, static_cast<std::int64_t>(sizes.size()));
    }
  return Status::ok;
}

Status run_f16_keys(const AttentionShape& s, const AttentionRow* rows, std::int64_t count, const Parallel&) {
  if (!takes_q8(s) || count < 0) return Status::bad_shape;
  for (std::int64_t r = 0; r < count; ++r)
    for (std::int64_t h = 0; h < s.heads; ++h) run_head(s, rows[r], h, rows[r].query + h * s.head_size, 0);
  return Status::ok;
}

}  // namespace

const AttentionKernel attention_q8 = {"attention_q8_reference", Isa::reference, nullptr, run};
const AttentionKernel attention_q8_f16_keys = {"attention_q8_f16_keys_reference", Isa::reference, nullptr,
                                               run_f16_keys};

}  // namespace bie::kernels::reference
