// The tile of weight-only products with integer activations for VNNI: 5 rows x 64 outputs, or 12 x 32 twice.
//
// Lanes are outputs, the bytes of a lane four rows, and vpdpbusd multiplies unsigned codes with signed activations. Of
// one row nothing is shifted: a field of a byte is masked out where it lies, is so many times the code and has sums of
// its own, which are shifted once per group. More rows share opened codes. One instruction (GFNI) moves a field down,
// as the product of its byte and a matrix of bits: a shift and a mask would be two, and Intel's CPUs shift on one port.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/weight_only/weight_panels.h"

namespace bie::kernels::cpu::avx512 {
namespace {

#define BIE_INLINE [[gnu::always_inline]] inline

constexpr std::int64_t ahead = 4096;  // bytes of a panel that are fetched before they are needed

BIE_INLINE __m512i four_codes(const std::int8_t* u) {
  std::int32_t four;
  std::memcpy(&four, u, 4);
  return _mm512_set1_epi32(four);
}

BIE_INLINE __mmask16 lanes_of(std::int32_t count) {
  return count >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>((1u << (count < 0 ? 0 : count)) - 1);
}

}  // namespace

/// Magnitudes are compared by their bits, which rise as they do; NaN is above infinity.
float weight_only_q8_codes(const Q8CodesArgs& a, std::int32_t* sum) {
  __m512i most = _mm512_setzero_si512();
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  for (std::int32_t i = 0; i < a.count; i += 16) {
    const __m512 x = _mm512_maskz_loadu_ps(lanes_of(a.count - i), a.x + i);
    most = _mm512_max_epi32(most, _mm512_and_si512(_mm512_castps_si512(x), magnitude));
  }
  const std::int32_t largest = _mm512_reduce_max_epi32(most);
  float of_largest;
  std::memcpy(&of_largest, &largest, 4);
  const bool finite = largest < 0x7f800000, live = finite && of_largest >= 0x1p-100f;
  const __m512 r = _mm512_set1_ps(live ? 127.0f / of_largest : 0.0f);
  __m512i all = _mm512_setzero_si512();
  std::int8_t* u = a.u;
  for (std::int32_t i = 0, left = a.quads; left > 0; i += 16, left -= 4) {
    const __mmask16 lanes = live ? lanes_of(a.count - i) : __mmask16{0};
    const __m512i code = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, a.x + i), r));
    all = _mm512_add_epi32(all, code);
    const __m128i bytes = _mm512_cvtepi32_epi8(code);
    if (a.rows == 1 || a.piece > 4) {
      _mm_mask_storeu_epi32(u, static_cast<__mmask8>(lanes_of(left)), bytes);
      u += (i + 16) % a.piece == 0 ? 16 + a.piece * (a.rows - 1) : 16;
      continue;
    }
    std::int32_t quads[4];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(quads), bytes);
    for (int q = 0; q < 4 && q < left; ++q, u += std::int64_t{4} * a.rows) std::memcpy(u, &quads[q], 4);
  }
  *sum = _mm512_reduce_add_epi32(all);
  return live ? of_largest / 127.0f : finite ? 0.0f : __builtin_nanf("");
}

namespace {

template <Dtype dtype>
BIE_INLINE __m512 load_floats(const char* at, int v) {
  if constexpr (dtype == Dtype::f32) return _mm512_load_ps(at + 64 * v);
  const __m256i halves = _mm256_load_si256(reinterpret_cast<const __m256i*>(at + 32 * v));
  if constexpr (dtype == Dtype::f16) return _mm512_cvtph_ps(halves);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

template <Dtype dtype>
BIE_INLINE void open_numbers(const char* at, float middle, Offset offset, Q8Numbers* to) {
  const char* const zeros = at + (dtype == Dtype::f32 ? 4 : 2) * panel_columns;
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) _mm512_store_ps(to->s + 16 * v, load_floats<dtype>(at, v));
  if (offset == Offset::value) {
    const __m512 h = _mm512_set1_ps(middle);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v)
      _mm512_store_ps(to->o + 16 * v, _mm512_fmsub_ps(h, load_floats<dtype>(at, v), load_floats<dtype>(zeros, v)));
  } else if (offset == Offset::zero) {
    const __m512 one_less = _mm512_set1_ps(middle - 1);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const __m512i z = _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(zeros + 16 * v)));
      const __m512 from_zero = _mm512_sub_ps(one_less, _mm512_cvtepi32_ps(z));
      _mm512_store_ps(to->o + 16 * v, _mm512_mul_ps(load_floats<dtype>(at, v), from_zero));
    }
  }
}

BIE_INLINE __m512 floats_of_bytes(const char* at, int less) {
  const __m512i wide = _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(at)));
  return _mm512_cvtepi32_ps(_mm512_sub_epi32(wide, _mm512_set1_epi32(less)));
}

/// Multiplies the two levels of scales and zeros.
[[gnu::noinline]] void multiply_levels(const char* super, const char* at, float middle, Offset offset, Q8Numbers* to) {
  const __m512 h = _mm512_set1_ps(middle);
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const __m512 s = _mm512_mul_ps(load_floats<Dtype::f16>(super, v), floats_of_bytes(at + 16 * v, 128));
    _mm512_store_ps(to->s + 16 * v, s);
    if (offset == Offset::none) continue;
    const __m512 z = _mm512_mul_ps(load_floats<Dtype::f16>(super + 2 * panel_columns, v),
                                   floats_of_bytes(at + panel_columns + 16 * v, 0));
    _mm512_store_ps(to->o + 16 * v, _mm512_fmsub_ps(h, s, z));
  }
}

BIE_INLINE void open_numbers(const PanelNumbers& numbers, const WeightGroup& group, const PanelGroups& at,
                             Q8Numbers* to) {
  if (numbers.groups_of_super > 0) return multiply_levels(at.super(), at.numbers(), group.middle, numbers.offset, to);
  switch (numbers.scale) {
    case Dtype::f32: open_numbers<Dtype::f32>(at.numbers(), group.middle, numbers.offset, to); break;
    case Dtype::f16: open_numbers<Dtype::f16>(at.numbers(), group.middle, numbers.offset, to); break;
    default: open_numbers<Dtype::bf16>(at.numbers(), group.middle, numbers.offset, to); break;
  }
}

}  // namespace

/// They stay in memory: the loop of products of many rows has no registers for them.
[[gnu::noinline]] void weight_only_q8_numbers(const PanelNumbers& numbers, const WeightGroup& group,
                                              const PanelGroups& at, Q8Numbers* to) {
  open_numbers(numbers, group, at, to);
}

namespace {

/// Adds one group's contribution to the outputs; `sum` holds D.
template <bool subtracts, int R, int V>
BIE_INLINE void end_group(const float* s, const float* o, const float* sums, const float* steps, float* y,
                          std::int64_t stride, const __m512i (&sum)[R][V]) {
  __m512 scale[V], offset[V];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    scale[v] = _mm512_load_ps(s + 16 * v);
    if constexpr (subtracts) offset[v] = _mm512_load_ps(o + 16 * v);
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r, y += stride) {
    const __m512 all = _mm512_set1_ps(sums[r]), step = _mm512_set1_ps(steps[r]);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      __m512 t = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[r][v]), scale[v]);
      if constexpr (subtracts) t = _mm512_fmadd_ps(all, offset[v], t);
      _mm512_storeu_ps(y + 16 * v, _mm512_fmadd_ps(step, t, _mm512_loadu_ps(y + 16 * v)));
    }
  }
}

/// D of one row.
template <int width>
BIE_INLINE void multiply(const WeightGroup& group, const std::int8_t* u, const std::int32_t* starts, const char* lines,
                         __m512i (&sum)[1][4]) {
  constexpr int fields = 8 / width, kept = fields < 4 ? fields : 4;
  __m512i parts[4][kept];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v)
#pragma GCC unroll 4
    for (int f = 0; f < kept; ++f) parts[v][f] = _mm512_set1_epi32(f == 0 ? starts[0] : 0);
  for (std::int32_t line = 0; line < group.lines; line += 4, lines += 256, u += 4 * fields) {
    __m512i word[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      word[v] = _mm512_load_si512(lines + 64 * v);
      _mm_prefetch(lines + 64 * v + ahead, _MM_HINT_T0);
    }
#pragma GCC unroll 8
    for (int f = 0; f < fields; ++f) {
      const __m512i mask = _mm512_set1_epi8(static_cast<char>(((1 << width) - 1) << (width * (f % 4))));
      const __m512i by = four_codes(u + 4 * f);
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        if (f == 4) word[v] = _mm512_srli_epi32(word[v], 4);
        const __m512i codes = width == 8 ? word[v] : _mm512_and_si512(word[v], mask);
        parts[v][f % 4] = _mm512_dpbusd_epi32(parts[v][f % 4], codes, by);
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    sum[0][v] = parts[v][0];
#pragma GCC unroll 4
    for (int f = 1; f < kept; ++f) sum[0][v] = _mm512_add_epi32(sum[0][v], _mm512_srai_epi32(parts[v][f], width * f));
  }
}

/// Matrices that take a byte to its fields of one width, lowest field first.
struct FieldMatrices {
  std::uint64_t of_field[8] = {};

  /// A field of the byte becomes `field << up`. Bit i of a product is the parity of the byte and byte 7 - i of the
  /// matrix.
  constexpr FieldMatrices(int width, int up) {
    for (int f = 0; f < 8 / width; ++f)
      for (int i = 0; i < width; ++i) of_field[f] |= std::uint64_t{1} << (8 * (7 - up - i) + width * f + i);
  }
};
constexpr FieldMatrices doubled_bits{1, 1};
constexpr FieldMatrices fields_of_width[] = {{1, 0}, {2, 0}, {4, 0}, {8, 0}};

/// For codes of 1, 2, 4 or 8 bits; those of 1 bit doubled where `doubles`.
BIE_INLINE const std::uint64_t* field_matrices(int width, bool doubles) {
  const int log2 = width == 1 ? 0 : width == 2 ? 1 : width == 4 ? 2 : 3;
  return (doubles ? doubled_bits : fields_of_width[log2]).of_field;
}

BIE_INLINE __m512i field_of(__m512i bytes, std::uint64_t matrix) {
  return _mm512_gf2p8affine_epi64_epi8(bytes, _mm512_set1_epi64(static_cast<long long>(matrix)), 0);
}

/// D of R rows and V vectors of outputs. The width is no template's: the loop would be compiled once for each. Codes
/// that count twice are opened a bit further up.
template <int R, int V>
BIE_INLINE void multiply(const WeightGroup& group, bool doubles, const std::int8_t* u, const std::int32_t* starts,
                         const char* lines, __m512i (&sum)[R][V]) {
  const int fields = 8 / group.width;
  const std::uint64_t* const matrices = field_matrices(group.width, doubles);
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[r][v] = _mm512_set1_epi32(starts[r]);
  for (std::int32_t line = 0; line < group.lines; line += 4, lines += 256) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) _mm_prefetch(lines + 64 * v + ahead, _MM_HINT_T0);
    // Codes of 8 bits are one field, the others have pairs of fields.
    for (int f = 0; f < fields; f += 2) {
#pragma GCC unroll 2
      for (int g = 0; g < 2; ++g, u += 4 * R) {
        if (g == 1 && fields == 1) break;
        __m512i codes[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) codes[v] = field_of(_mm512_load_si512(lines + 64 * v), matrices[f + g]);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
          const __m512i by = four_codes(u + 4 * r);
#pragma GCC unroll 4
          for (int v = 0; v < V; ++v) sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], codes[v], by);
        }
      }
    }
  }
}

/// Adds one group's contribution to the outputs from 16 v on.
template <int R, int V>
BIE_INLINE void end_group(const WeightOnlyQ8Args& a, const Q8Numbers& n, int v, const float* sums, const float* steps,
                          const __m512i (&sum)[R][V]) {
  if (a.numbers.offset == Offset::none)
    end_group<false, R, V>(n.s + 16 * v, n.o + 16 * v, sums, steps, a.y + 16 * v, a.y_stride, sum);
  else
    end_group<true, R, V>(n.s + 16 * v, n.o + 16 * v, sums, steps, a.y + 16 * v, a.y_stride, sum);
}

/// One group of one row.
template <int width>
void add_row(const WeightOnlyQ8Args& a, const WeightGroup& group, const std::int8_t* u, const std::int32_t* starts,
             const float* sums, const float* steps, const PanelGroups& at) {
  const char* const lines = at.lines();
  __m512i sum[1][4];
  if constexpr (width == 1) {
    const std::int32_t none = 0;
    multiply<width>(group, u, a.doubles ? &none : starts, lines, sum);
    if (a.doubles)
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v)
        sum[0][v] = _mm512_add_epi32(_mm512_set1_epi32(starts[0]), _mm512_slli_epi32(sum[0][v], 1));
  } else {
    multiply<width>(group, u, starts, lines, sum);
  }
  Q8Numbers n;
  open_numbers(a.numbers, group, at, &n);
  end_group<1, 4>(a, n, 0, sums, steps, sum);
}

/// One group of more rows, V vectors of outputs at a time.
template <int R>
BIE_INLINE void add_rows(const WeightOnlyQ8Args& a, const WeightGroup& group, const std::int8_t* u,
                         const std::int32_t* starts, const float* sums, const float* steps, const PanelGroups& at) {
  constexpr int V = R <= 5 ? 4 : 2;
  Q8Numbers n;
  weight_only_q8_numbers(a.numbers, group, at, &n);
#pragma GCC unroll 1
  for (int v = 0; v < 4; v += V) {
    __m512i sum[R][V];
    multiply<R, V>(group, a.doubles, u, starts, at.lines() + 64 * v, sum);
    end_group<R, V>(a, n, v, sums, steps, sum);
  }
}

template <int R>
void tile(const WeightOnlyQ8Args& a) {
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < panel_columns; j += 16) _mm512_storeu_ps(a.y + r * a.y_stride + j, _mm512_setzero_ps());
  const std::int8_t* u = a.u;
  const std::int32_t* starts = a.starts;
  const float *sums = a.sums, *steps = a.steps;
  PanelGroups at(a.panel, a.numbers);
  for (std::int64_t g = 0; g < a.group_count; ++g, starts += R, sums += R, steps += R) {
    const WeightGroup& group = a.groups[g];
    if constexpr (R > 1) {
      add_rows<R>(a, group, u, starts, sums, steps, at);
    } else {
      switch (group.width) {
        case 1: add_row<1>(a, group, u, starts, sums, steps, at); break;
        case 2: add_row<2>(a, group, u, starts, sums, steps, at); break;
        case 4: add_row<4>(a, group, u, starts, sums, steps, at); break;
        default: add_row<8>(a, group, u, starts, sums, steps, at); break;
      }
    }
    u += std::int64_t{4} * group.quads() * R;
    at.pass(group);
  }
}

using Run = void (*)(const WeightOnlyQ8Args&);
constexpr Run tiles[] = {tile<1>, tile<2>, tile<3>, tile<4>,  tile<5>,  tile<6>,
                         tile<7>, tile<8>, tile<9>, tile<10>, tile<11>, tile<12>};

void run(const WeightOnlyQ8Args& a) { tiles[a.rows - 1](a); }

}  // namespace

const WeightOnlyQ8Tile weight_only_q8_tile = {12, 1, weight_only_q8_codes, run};

}  // namespace bie::kernels::cpu::avx512
