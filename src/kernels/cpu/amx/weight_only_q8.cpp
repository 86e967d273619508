// The tile of weight-only products with integer activations for AMX: up to 64 rows x 64 outputs. Codes are opened to
// bytes once for all rows, a part of a group at a time; those of 8 bits are read where they lie. tdpbsud multiplies
// signed activations with unsigned codes, 16 rows x 64 outputs x 64 of k in four instructions.
#include "kernels/cpu/amx/tiles.h"
#include "kernels/cpu/weight_only/weight_panels.h"

namespace bie::kernels::cpu::BIE_AMX_SET {

extern const WeightOnlyQ8Tile weight_only_q8_tile;

namespace {

constexpr int most_rows = 64, tile_rows = 16;
constexpr int piece = 64;                                     // bytes of a row of a tile
constexpr int step_quads = piece / q8_quad;                   // of rows of k in a tile
constexpr std::int64_t quad_bytes = q8_quad * panel_columns;  // of opened codes
constexpr std::int64_t part_quads = 4 * step_quads;
constexpr std::int64_t row_stride = 4 * panel_columns;  // of sums

/// Sets of lines as bytes, [quad][output][4], of codes times 2^up.
template <int width, int up = 0>
void open_sets(const char* lines, std::int64_t quads, char* to) {
  constexpr int fields = 8 / width;
  constexpr std::int64_t ahead = 4096;
  const __m512i mask = _mm512_set1_epi8(static_cast<char>(((1 << width) - 1) << up));
  for (std::int64_t q = 0; q < quads; q += fields, lines += 256, to += fields * quad_bytes)
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const __m512i word = _mm512_load_si512(lines + 64 * v);
      _mm_prefetch(lines + 64 * v + ahead, _MM_HINT_T0);
#pragma GCC unroll 8
      for (int f = 0; f < fields; ++f)
        _mm512_store_si512(to + f * quad_bytes + 64 * v,
                           _mm512_and_si512(_mm512_rorv_epi32(word, _mm512_set1_epi32(width * f - up)), mask));
    }
}

/// Codes of `count` quads from `first` on as whole tiles; behind the last one there are zeros.
const char* open(const WeightGroup& group, bool doubles, const char* lines, std::int64_t first, std::int64_t count,
                 char* to) {
  const char* const at = lines + first * quad_bytes / (8 / group.width);
  if (group.width == 8 && count % step_quads == 0) return at;
  switch (group.width) {
    case 1: doubles ? open_sets<1, 1>(at, count, to) : open_sets<1>(at, count, to); break;
    case 2: open_sets<2>(at, count, to); break;
    case 4: open_sets<4>(at, count, to); break;
    default: open_sets<8>(at, count, to); break;
  }
  for (char* zeros = to + count * quad_bytes; (zeros - to) % (step_quads * quad_bytes) != 0; zeros += 64)
    _mm512_store_si512(zeros, _mm512_setzero_si512());
  return to;
}

/// Scales and offsets of a group. Where `quick`, a sum has few enough bits and a scale so few that
/// (sum + shift) * s - shift * s is rounded once, to what sum * s is.
struct Numbers : Q8Numbers {
  float back[panel_columns];  ///< -shift * s
  bool quick;
};
constexpr float shift = 12582912.0f;             // 1.5 * 2^23
constexpr std::int32_t shift_bits = 0x4b400000;  // as which + D are those of shift + D
constexpr std::int64_t most_shifted = 1 << 22;

void open_numbers(const PanelNumbers& numbers, const WeightGroup& group, const PanelGroups& at, Numbers* n) {
  avx512::weight_only_q8_numbers(numbers, group, at, n);
  n->quick = numbers.scale != Dtype::f32 && 127 * group.middle * group.rows < most_shifted;
  __mmask16 small = 0xffff;
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const __m512 s = _mm512_load_ps(n->s + 16 * v);
    small &= _mm512_cmp_ps_mask(_mm512_abs_ps(s), _mm512_set1_ps(0x1p100f), _CMP_LT_OQ);
    _mm512_store_ps(n->back + 16 * v, _mm512_mul_ps(s, _mm512_set1_ps(-shift)));
  }
  n->quick = n->quick && small == 0xffff;
}

/// 16 rows of a group that has ended: their products, and what is done with them.
struct Ended {
  std::int32_t* products;  ///< [16][64]
  const Numbers* numbers;
  const std::int32_t* starts;
  const float *sums, *steps;
  float* y;
  int count;  ///< of rows that are there; 0 where the group goes on
};

/// Adds ended rows to the outputs, some at a time.
template <bool subtracts, bool quick>
class Ending {
 public:
  Ending(const Ended& e, std::int64_t y_stride, std::int64_t slots)
      : products_(e.products),
        starts_(e.starts),
        sums_(e.sums),
        steps_(e.steps),
        y_(e.y),
        y_stride_(y_stride),
        left_(e.count),
        at_once_(slots == 4   ? 4
                 : slots < 16 ? 2
                              : 1) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      scale_[v] = _mm512_load_ps(e.numbers->s + 16 * v);
      if (subtracts) offset_[v] = _mm512_load_ps(e.numbers->o + 16 * v);
      if (quick) back_[v] = _mm512_load_ps(e.numbers->back + 16 * v);
    }
  }
  [[gnu::always_inline]] void some() { rows(at_once_); }
  [[gnu::always_inline]] void rest() { rows(left_); }

 private:
  [[gnu::always_inline]] void rows(int count) {
    count = count < left_ ? count : left_;
    left_ -= count;
#pragma GCC unroll 1
    for (; count > 0; --count) {
      const __m512i start = _mm512_set1_epi32(*starts_++);
      const __m512i begin = quick ? _mm512_add_epi32(start, _mm512_set1_epi32(shift_bits)) : start;
      const __m512 all = _mm512_set1_ps(*sums_++), step = _mm512_set1_ps(*steps_++);
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        const __m512i sum = _mm512_add_epi32(begin, _mm512_load_si512(products_ + 16 * v));
        __m512 t = quick ? _mm512_fmadd_ps(_mm512_castsi512_ps(sum), scale_[v], back_[v])
                         : _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale_[v]);
        if (subtracts) t = _mm512_fmadd_ps(all, offset_[v], t);
        _mm512_storeu_ps(y_ + 16 * v, _mm512_fmadd_ps(step, t, _mm512_loadu_ps(y_ + 16 * v)));
      }
      products_ += panel_columns;
      y_ += y_stride_;
    }
  }

  const std::int32_t* products_;
  const std::int32_t* starts_;
  const float *sums_, *steps_;
  float* y_;
  std::int64_t y_stride_;
  int left_, at_once_;
  __m512 scale_[4], offset_[4], back_[4];
};

/// 16 rows of activations and a part of a group.
struct Factors {
  const std::int8_t* u;
  std::int64_t next;  ///< bytes from one step to the next
  const char* codes;
  std::int64_t steps;
  const std::int32_t* sums;  ///< to begin with, or null
};

template <int T>
[[gnu::always_inline]] inline void begin_sum(const std::int32_t* sums, std::int32_t* before) {
  store_tile<T>(before + 16 * T, row_stride);
  if (sums == nullptr)
    zero_tile<T>();
  else
    load_tile<T>(sums + 16 * T, row_stride);
}

/// Multiplies. Meanwhile the sums of the turn before go to memory, and rows that ended before that to the outputs.
template <bool subtracts, bool quick>
void turn(const Factors& f, std::int32_t* before, const Ended& ended, std::int64_t y_stride) {
  Ending<subtracts, quick> ending(ended, y_stride, 4 * f.steps);
  const std::int8_t* u = f.u;
  const char* codes = f.codes;
  if (f.steps == 0) {
    begin_sum<0>(f.sums, before);
    begin_sum<1>(f.sums, before);
    begin_sum<2>(f.sums, before);
    begin_sum<3>(f.sums, before);
  } else {
    load_tile<4>(u, piece);
    load_tile<5>(codes, quad_bytes);
    begin_sum<0>(f.sums, before);
    dot_signed<0, 4, 5>();
    ending.some();
    load_tile<6>(codes + 64, quad_bytes);
    begin_sum<1>(f.sums, before);
    dot_signed<1, 4, 6>();
    ending.some();
    load_tile<7>(codes + 128, quad_bytes);
    begin_sum<2>(f.sums, before);
    dot_signed<2, 4, 7>();
    ending.some();
    load_tile<5>(codes + 192, quad_bytes);
    begin_sum<3>(f.sums, before);
    dot_signed<3, 4, 5>();
    ending.some();
    for (std::int64_t s = 1; s < f.steps; ++s) {
      u += f.next;
      codes += step_quads * quad_bytes;
      load_tile<4>(u, piece);
      load_tile<6>(codes, quad_bytes);
      dot_signed<0, 4, 6>();
      ending.some();
      load_tile<7>(codes + 64, quad_bytes);
      dot_signed<1, 4, 7>();
      ending.some();
      load_tile<5>(codes + 128, quad_bytes);
      dot_signed<2, 4, 5>();
      ending.some();
      load_tile<6>(codes + 192, quad_bytes);
      dot_signed<3, 4, 6>();
      ending.some();
    }
  }
  ending.rest();
}

template <bool subtracts>
void run_groups(const WeightOnlyQ8Args& a) {
  constexpr std::int64_t slot = tile_rows * panel_columns;
  alignas(64) char opened[part_quads * quad_bytes];
  alignas(64) std::int32_t products[6 * slot];
  Numbers numbers_of[4];
  for (int r = 0; r < a.rows; ++r)
    for (int j = 0; j < panel_columns; j += 16) _mm512_storeu_ps(a.y + r * a.y_stride + j, _mm512_setzero_ps());
  const std::int64_t next = std::int64_t{piece} * a.rows;
  const std::int8_t* u = a.u;
  const std::int32_t* starts = a.starts;
  const float *sums = a.sums, *steps = a.steps;
  PanelGroups lie(a.panel, a.numbers);
  Ended ring[4] = {};
  numbers_of[3].quick = true;
  for (Ended& rows : ring) rows = {products, numbers_of + 3, a.starts, a.sums, a.steps, a.y, 0};
  int at = 0;
  const auto take = [&](const Factors& f) {
    const Ended& ended = ring[(at + 2) % 4];
    ended.numbers->quick ? turn<subtracts, true>(f, ring[(at + 3) % 4].products, ended, a.y_stride)
                         : turn<subtracts, false>(f, ring[(at + 3) % 4].products, ended, a.y_stride);
    at = (at + 1) % 4;
  };
  for (std::int64_t g = 0; g < a.group_count; ++g, starts += a.rows, sums += a.rows, steps += a.rows) {
    const WeightGroup& group = a.groups[g];
    Numbers& n = numbers_of[g % 4];
    open_numbers(a.numbers, group, lie, &n);
    std::int64_t first = 0;
    const std::int64_t quads = group.quads();
    do {
      const std::int64_t count = quads - first < part_quads ? quads - first : part_quads;
      const std::int64_t whole = (count + step_quads - 1) / step_quads;
      const char* const codes = open(group, a.doubles, lie.lines(), first, count, opened);
      const bool ends = first + count >= quads;
      for (int r = 0; r < a.rows; r += tile_rows) {
        const std::int64_t place = quads <= part_quads ? at % 2 : a.rows > tile_rows ? 2 + r / tile_rows : 2 + g % 2;
        Ended& rows = ring[at];
        rows.products = products + place * slot;
        rows.numbers = &n;
        rows.starts = starts + r;
        rows.sums = sums + r;
        rows.steps = steps + r;
        rows.y = a.y + r * a.y_stride;
        rows.count = !ends ? 0 : a.rows - r < tile_rows ? a.rows - r : tile_rows;
        take({u + r * piece, next, codes, whole, first > 0 ? rows.products : nullptr});
      }
      u += whole * next;
      first += count;
    } while (first < quads);
    lie.pass(group);
  }
  // Drain the pipeline: two turns that multiply nothing finish the products in flight.
  for (int i = 0; i < 2; ++i) {
    ring[at].count = 0;
    ring[at].products = products + at % 2 * slot;
    take({});
  }
}

void run(const WeightOnlyQ8Args& a) { a.numbers.offset == Offset::none ? run_groups<false>(a) : run_groups<true>(a); }

}  // namespace

const WeightOnlyQ8Tile weight_only_q8_tile = {
    most_rows, 1, avx512::weight_only_q8_codes, run, piece, tile_rows, configure_tiles, release_tiles};

}  // namespace bie::kernels::cpu::BIE_AMX_SET
