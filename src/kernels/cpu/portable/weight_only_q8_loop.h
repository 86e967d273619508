// The tile of weight-only products with integer activations for vectors of 128 and 256 bits: one row x 4 vectors of
// outputs, or more rows x Vectors::columns vectors, until a panel's 64 outputs are done. Lanes are outputs, the bytes
// of a lane four rows.
//
// Vectors are what a folder has: loads, stores and arithmetic of bytes, int32 and float32. A Product<width> has
//
//     rows            at most
//     Codes, codes(field)    of a masked field of unsigned codes: what its multiplication wants
//     Sum, zero()     what it adds to: int32, or int16 that hold `most` quads of rows; most = 0: any number
//     row<r>(u)       the activations of row r, from those of a quad [rows][4]; the 12 bytes behind them can be read
//     add<r>(sum, codes, row)    the products of one quad
//     wide(sum)       as int32
//     starts          whether D begins with -zero * U, as the codes stay unsigned
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/weight_only/weight_panels.h"

namespace bie::kernels::cpu {
namespace {
namespace q8 {

#define BIE_Q8_INLINE [[gnu::always_inline]] inline

/// Scales and offsets of a group, 64 of each.
template <class Vectors>
struct alignas(64) Numbers {
  static constexpr int lanes = Vectors::lanes;
  float s[panel_columns], o[panel_columns];

  template <Dtype dtype>
  BIE_Q8_INLINE void open(const char* at, float middle, Offset offset) {
    constexpr int bytes = dtype == Dtype::f32 ? 4 : 2;
    const char* const zeros = at + bytes * panel_columns;
    for (int j = 0; j < panel_columns; j += lanes) {
      const auto scale = Vectors::template floats<dtype>(at + bytes * j);
      Vectors::store(s + j, scale);
      if (offset == Offset::value)
        Vectors::store(o + j, Vectors::times_less(Vectors::splat(middle), scale,
                                                  Vectors::template floats<dtype>(zeros + bytes * j)));
      else if (offset == Offset::zero)
        Vectors::store(o + j,
                       Vectors::times(scale, Vectors::less(Vectors::splat(middle - 1), Vectors::of_bytes(zeros + j))));
    }
  }
  /// Multiplies the two levels of scales and zeros.
  BIE_Q8_INLINE void multiply(const char* super, const char* at, float middle, Offset offset) {
    for (int j = 0; j < panel_columns; j += lanes) {
      const auto scale = Vectors::times(Vectors::template floats<Dtype::f16>(super + 2 * j),
                                        Vectors::less(Vectors::of_bytes(at + j), Vectors::splat(128.0f)));
      Vectors::store(s + j, scale);
      if (offset == Offset::none) continue;
      const auto zero = Vectors::times(Vectors::template floats<Dtype::f16>(super + 2 * (panel_columns + j)),
                                       Vectors::of_bytes(at + panel_columns + j));
      Vectors::store(o + j, Vectors::times_less(Vectors::splat(middle), scale, zero));
    }
  }
  [[gnu::noinline]] void open(const PanelNumbers& numbers, const WeightGroup& group, const PanelGroups& at) {
    if (numbers.groups_of_super > 0) return multiply(at.super(), at.numbers(), group.middle, numbers.offset);
    switch (numbers.scale) {
      case Dtype::f32: open<Dtype::f32>(at.numbers(), group.middle, numbers.offset); break;
      case Dtype::f16: open<Dtype::f16>(at.numbers(), group.middle, numbers.offset); break;
      default: open<Dtype::bf16>(at.numbers(), group.middle, numbers.offset); break;
    }
  }
};

/// Adds one group's contribution to the outputs; `sum` holds D.
template <class Vectors, bool subtracts, int R, int V>
BIE_Q8_INLINE void end_group(const float* s, const float* o, const float* sums, const float* steps, float* y,
                             std::int64_t stride, const typename Vectors::Ints (&sum)[R][V]) {
  constexpr int lanes = Vectors::lanes;
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r, y += stride) {
    const auto all = Vectors::splat(sums[r]), step = Vectors::splat(steps[r]);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      auto t = Vectors::times(Vectors::of_ints(sum[r][v]), Vectors::load(s + lanes * v));
      if constexpr (subtracts) t = Vectors::times_plus(all, Vectors::load(o + lanes * v), t);
      Vectors::store(y + lanes * v, Vectors::times_plus(step, t, Vectors::load(y + lanes * v)));
    }
  }
}

/// Adds the products of a quad of rows r ....
template <class Product, int R, int V, int r = 0>
BIE_Q8_INLINE void add_quad(const typename Product::Codes (&codes)[V], const std::int8_t* u,
                            typename Product::Sum (&sum)[R][V]) {
  if constexpr (r < R) {
    const auto by = Product::template row<r>(u);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[r][v] = Product::template add<r>(sum[r][v], codes[v], by);
    add_quad<Product, R, V, r + 1>(codes, u, sum);
  }
}

/// Adds the products of whole sets of lines.
template <class Vectors, class Product, int width, int R, int V>
BIE_Q8_INLINE void add_sets(std::int32_t sets, const char* lines, const std::int8_t* u,
                            typename Product::Sum (&sum)[R][V]) {
  constexpr int ahead = 4096;  // bytes of a panel that are fetched before they are needed
  for (; sets > 0; --sets, lines += 256) {
#pragma GCC unroll 4
    for (int byte = 0; byte < 4 * Vectors::lanes * V; byte += 64) __builtin_prefetch(lines + ahead + byte);
#pragma GCC unroll 8
    for (int f = 0; f < 8 / width; ++f, u += 4 * R) {
      asm("" ::: "memory");  // lines are loaded again for each field: kept, they would take registers of sums
      typename Product::Codes codes[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v)
        codes[v] = Product::codes(Vectors::template field<width>(lines + 4 * Vectors::lanes * v, f));
      add_quad<Product, R, V>(codes, u, sum);
    }
  }
}

template <class Vectors, class Product, int width, int R>
void add_group(const WeightOnlyQ8Args& a, const WeightGroup& group, const std::int8_t* u, const std::int32_t* starts,
               const float* sums, const float* steps, const PanelGroups& at) {
  constexpr int V = R == 1 ? 4 : Vectors::columns, lanes = Vectors::lanes;
  constexpr int most = Product::most * width / 8;  // sets
  Numbers<Vectors> n;
  n.open(a.numbers, group, at);
#pragma GCC unroll 1
  for (int j = 0; j < panel_columns; j += V * lanes) {
    typename Vectors::Ints all[R][V];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) all[r][v] = Vectors::splat(Product::starts && !a.doubles ? starts[r] : 0);
    const std::int8_t* by = u;
    const char* from = at.lines() + 4 * j;
    if constexpr (most == 0) {
      add_sets<Vectors, Product, width, R, V>(group.lines / 4, from, by, all);
    } else {
      for (std::int32_t left = group.lines / 4; left > 0; left -= most) {
        typename Product::Sum sum[R][V];
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
          for (int v = 0; v < V; ++v) sum[r][v] = Product::zero();
        const std::int32_t sets = left < most ? left : most;
        add_sets<Vectors, Product, width, R, V>(sets, from, by, sum);
        from += std::int64_t{256} * sets;
        by += std::int64_t{32} / width * R * sets;
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
          for (int v = 0; v < V; ++v) all[r][v] = Vectors::plus(all[r][v], Product::wide(sum[r][v]));
      }
    }
    if constexpr (width == 1)
      if (a.doubles)
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
          for (int v = 0; v < V; ++v)
            all[r][v] = Vectors::plus(Vectors::splat(starts[r]), Vectors::plus(all[r][v], all[r][v]));
    if (a.numbers.offset == Offset::none)
      end_group<Vectors, false, R, V>(n.s + j, n.o + j, sums, steps, a.y + j, a.y_stride, all);
    else
      end_group<Vectors, true, R, V>(n.s + j, n.o + j, sums, steps, a.y + j, a.y_stride, all);
  }
}

template <class Vectors, template <int> class Product, int R>
void tile(const WeightOnlyQ8Args& a) {
  for (int r = 0; r < R; ++r) std::memset(a.y + r * a.y_stride, 0, 4 * panel_columns);
  const std::int8_t* u = a.u;
  const std::int32_t* starts = a.starts;
  const float *sums = a.sums, *steps = a.steps;
  PanelGroups at(a.panel, a.numbers);
  for (std::int64_t g = 0; g < a.group_count; ++g, starts += R, sums += R, steps += R) {
    const WeightGroup& group = a.groups[g];
    switch (group.width) {
      case 1: add_group<Vectors, Product<1>, 1, R>(a, group, u, starts, sums, steps, at); break;
      case 2: add_group<Vectors, Product<2>, 2, R>(a, group, u, starts, sums, steps, at); break;
      case 4: add_group<Vectors, Product<4>, 4, R>(a, group, u, starts, sums, steps, at); break;
      default: add_group<Vectors, Product<8>, 8, R>(a, group, u, starts, sums, steps, at); break;
    }
    u += std::int64_t{4} * group.quads() * R;
    at.pass(group);
  }
}

template <class Vectors, template <int> class Product, int R = Product<8>::rows>
BIE_Q8_INLINE void run(const WeightOnlyQ8Args& a) {
  if constexpr (R > 1) {
    if (a.rows < R) return run<Vectors, Product, R - 1>(a);
  }
  tile<Vectors, Product, R>(a);
}

}  // namespace q8
}  // namespace
}  // namespace bie::kernels::cpu
