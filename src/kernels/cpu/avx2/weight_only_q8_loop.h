// The tile of weight-only products with integer activations for 256 bits, whatever multiplies: up to Product::rows rows
// x 16 outputs from registers, four times; one row x 32 outputs twice. Included by avx2 and avxvnni.
//
// Lanes are outputs, the bytes of a lane four rows. A Product has
//
//     Sum                      what it adds to: int32, or pairs of int16 that hold `most` quads of rows
//     codes(field)             of a masked field of unsigned codes: what its multiplication wants
//     add(sum, codes, u)       the products of one quad
//     wide(sum)                as int32
//     starts                   whether D begins with -2^(width - 1) * U, as the codes stay unsigned
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/weight_panels.h"

namespace bie::kernels::cpu::avx2 {
namespace {
namespace q8 {

#define BIE_INLINE [[gnu::always_inline]] inline

template <Dtype dtype>
BIE_INLINE __m256 load_floats(const char* at, int v) {
  if constexpr (dtype == Dtype::f32) return _mm256_load_ps(reinterpret_cast<const float*>(at) + 8 * v);
  const __m128i halves = _mm_load_si128(reinterpret_cast<const __m128i*>(at + 16 * v));
  if constexpr (dtype == Dtype::f16) return _mm256_cvtph_ps(halves);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/// Scales and offsets of a group, 64 of each.
struct alignas(64) Numbers {
  float s[panel_columns], o[panel_columns];

  template <Dtype dtype>
  BIE_INLINE void open(const char* at, float middle, Offset offset) {
    const char* const zeros = at + (dtype == Dtype::f32 ? 4 : 2) * panel_columns;
    for (int v = 0; v < 8; ++v) {
      const __m256 scale = load_floats<dtype>(at, v);
      _mm256_store_ps(s + 8 * v, scale);
      if (offset == Offset::value) {
        _mm256_store_ps(o + 8 * v, _mm256_fmsub_ps(_mm256_set1_ps(middle), scale, load_floats<dtype>(zeros, v)));
      } else if (offset == Offset::zero) {
        const __m256i z = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(zeros + 8 * v)));
        _mm256_store_ps(o + 8 * v,
                        _mm256_mul_ps(scale, _mm256_sub_ps(_mm256_set1_ps(middle - 1), _mm256_cvtepi32_ps(z))));
      }
    }
  }
  BIE_INLINE void open(const WeightOnlyQ8Args& a, const WeightGroup& group, const char* at) {
    switch (a.scale) {
      case Dtype::f32: open<Dtype::f32>(at, group.middle, a.offset); break;
      case Dtype::f16: open<Dtype::f16>(at, group.middle, a.offset); break;
      default: open<Dtype::bf16>(at, group.middle, a.offset); break;
    }
  }
};

/// What a group adds to outputs, of which `sum` holds D.
template <bool subtracts, int R, int V>
BIE_INLINE void end_group(const float* s, const float* o, const float* sums, const float* steps, float* y,
                          std::int64_t stride, const __m256i (&sum)[R][V]) {
#pragma GCC unroll 5
  for (int r = 0; r < R; ++r, y += stride) {
    const __m256 all = _mm256_broadcast_ss(sums + r), step = _mm256_broadcast_ss(steps + r);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      __m256 t = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[r][v]), _mm256_load_ps(s + 8 * v));
      if constexpr (subtracts) t = _mm256_fmadd_ps(all, _mm256_load_ps(o + 8 * v), t);
      _mm256_storeu_ps(y + 8 * v, _mm256_fmadd_ps(step, t, _mm256_loadu_ps(y + 8 * v)));
    }
  }
}

/// Adds the products of whole sets of lines.
template <class Product, int width, int R, int V>
BIE_INLINE void add_sets(std::int32_t sets, const char* lines, const std::int8_t* u,
                         typename Product::Sum (&sum)[R][V]) {
  constexpr int fields = 8 / width;
  for (; sets > 0; --sets, lines += 256) {
#pragma GCC unroll 8
    for (int f = 0; f < fields; ++f, u += 4 * R) {
      asm("" ::: "memory");  // lines are loaded again for each field: kept, they would take registers of sums
      typename Product::Codes codes[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        __m256i field = _mm256_load_si256(reinterpret_cast<const __m256i*>(lines + 32 * v));
        if (f > 0) field = _mm256_srli_epi32(field, width * f);
        if (width < 8) field = _mm256_and_si256(field, _mm256_set1_epi8(static_cast<char>((1 << width) - 1)));
        codes[v] = Product::codes(field);
      }
#pragma GCC unroll 5
      for (int r = 0; r < R; ++r) {
        std::int32_t four;
        std::memcpy(&four, u + 4 * r, 4);
        const __m256i by = _mm256_set1_epi32(four);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sum[r][v] = Product::add(sum[r][v], codes[v], by);
      }
    }
  }
}

template <class Product, int width, int R>
void add_group(const WeightOnlyQ8Args& a, const WeightGroup& group, const std::int8_t* u, const std::int32_t* starts,
               const float* sums, const float* steps, const char* numbers, const char* lines) {
  constexpr int V = R == 1 ? 4 : 2, most = static_cast<int>(Product::most) * width / 8;  // sets
  Numbers n;
  n.open(a, group, numbers);
#pragma GCC unroll 1
  for (int v = 0; v < 8; v += V) {
    __m256i all[R][V];
#pragma GCC unroll 5
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int i = 0; i < V; ++i) all[r][i] = Product::starts ? _mm256_set1_epi32(starts[r]) : _mm256_setzero_si256();
    const std::int8_t* at = u;
    const char* from = lines + 32 * v;
    if constexpr (most == 0) {  // int32 sums
      add_sets<Product, width, R, V>(group.lines / 4, from, at, all);
    } else {
      for (std::int32_t left = group.lines / 4; left > 0; left -= most) {
        typename Product::Sum sum[R][V];
#pragma GCC unroll 5
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
          for (int i = 0; i < V; ++i) sum[r][i] = _mm256_setzero_si256();
        const std::int32_t sets = left < most ? left : most;
        add_sets<Product, width, R, V>(sets, from, at, sum);
        from += std::int64_t{256} * sets;
        at += std::int64_t{32} / width * R * sets;
#pragma GCC unroll 5
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
          for (int i = 0; i < V; ++i) all[r][i] = _mm256_add_epi32(all[r][i], Product::wide(sum[r][i]));
      }
    }
    float* const y = a.y + 8 * v;
    if (a.offset == Offset::none)
      end_group<false, R, V>(n.s + 8 * v, n.o + 8 * v, sums, steps, y, a.y_stride, all);
    else
      end_group<true, R, V>(n.s + 8 * v, n.o + 8 * v, sums, steps, y, a.y_stride, all);
  }
}

/// `Products` has one for codes of up to 4 bits in a place of that width, and one for 8.
template <template <int> class Product, int R>
void tile(const WeightOnlyQ8Args& a) {
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < panel_columns; j += 8) _mm256_storeu_ps(a.y + r * a.y_stride + j, _mm256_setzero_ps());
  const std::int64_t numbers = row_bytes(a.scale, panel_columns) + zero_bytes(a.offset, a.scale);
  const std::int8_t* u = a.u;
  const std::int32_t* starts = a.starts;
  const float *sums = a.sums, *steps = a.steps;
  const char* panel = a.panel;
  for (std::int64_t g = 0; g < a.group_count; ++g, starts += R, sums += R, steps += R) {
    const WeightGroup& group = a.groups[g];
    const char* const lines = panel + numbers;
    switch (group.width) {
      case 1: add_group<Product<1>, 1, R>(a, group, u, starts, sums, steps, panel, lines); break;
      case 2: add_group<Product<2>, 2, R>(a, group, u, starts, sums, steps, panel, lines); break;
      case 4: add_group<Product<4>, 4, R>(a, group, u, starts, sums, steps, panel, lines); break;
      default: add_group<Product<8>, 8, R>(a, group, u, starts, sums, steps, panel, lines); break;
    }
    u += std::int64_t{4} * group.quads() * R;
    panel = lines + 64 * group.lines;
  }
}

template <template <int> class Product, int most>
BIE_INLINE void run(const WeightOnlyQ8Args& a) {
  static_assert(most == 4 || most == 5);
  switch (a.rows) {
    case 1: return tile<Product, 1>(a);
    case 2: return tile<Product, 2>(a);
    case 3: return tile<Product, 3>(a);
    case 4: return tile<Product, 4>(a);
    default:
      if constexpr (most == 5) return tile<Product, 5>(a);
  }
}

}  // namespace q8
}  // namespace
}  // namespace bie::kernels::cpu::avx2
