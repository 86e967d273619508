// The tile of weight-only products with integer activations for AMX: up to 64 rows x 64 outputs. Codes are opened to
// bytes once for all rows, a part of a group at a time; those of 8 bits are read where they lie. tdpbsud multiplies
// signed activations with unsigned codes, 32 rows x 32 outputs x 64 of k in four instructions.
#include "kernels/cpu/amx/tiles.h"
#include "kernels/cpu/weight_panels.h"

namespace bie::kernels::cpu::BIE_AMX_SET {

extern const WeightOnlyQ8Tile weight_only_q8_tile;

namespace {

constexpr int most_rows = 64, tile_rows = 16;
constexpr int piece = 64;                                    // bytes of a row of a tile
constexpr int step_quads = piece / q8_quad;                  // of rows of k in a tile
constexpr std::int64_t quad_bytes = q8_quad * panel_columns; // of opened codes
constexpr std::int64_t part_quads = 4 * step_quads;

/// Sets of lines as bytes, [quad][output][4].
template <int width>
void open_sets(const char* lines, std::int64_t quads, char* to) {
  constexpr int fields = 8 / width;
  constexpr std::int64_t ahead = 4096;
  const __m512i mask = _mm512_set1_epi8(static_cast<char>((1 << width) - 1));
  for (std::int64_t q = 0; q < quads; q += fields, lines += 256, to += fields * quad_bytes)
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const __m512i word = _mm512_load_si512(lines + 64 * v);
      _mm_prefetch(lines + 64 * v + ahead, _MM_HINT_T0);
#pragma GCC unroll 8
      for (int f = 0; f < fields; ++f)
        _mm512_store_si512(to + f * quad_bytes + 64 * v, _mm512_and_si512(_mm512_srli_epi32(word, width * f), mask));
    }
}

/// Codes of `count` quads from `first` on as whole tiles; behind the last one there are zeros.
const char* open(const WeightGroup& group, const char* lines, std::int64_t first, std::int64_t count, char* to) {
  const char* const at = lines + first * quad_bytes / (8 / group.width);
  if (group.width == 8 && count % step_quads == 0) return at;
  switch (group.width) {
    case 1: open_sets<1>(at, count, to); break;
    case 2: open_sets<2>(at, count, to); break;
    case 4: open_sets<4>(at, count, to); break;
    default: open_sets<8>(at, count, to); break;
  }
  for (char* zeros = to + count * quad_bytes; (zeros - to) % (step_quads * quad_bytes) != 0; zeros += 64)
    _mm512_store_si512(zeros, _mm512_setzero_si512());
  return to;
}

/// Sums of up to 32 rows and all outputs. `steps` of codes; those of the rows are `next` bytes apart.
template <bool two>
void multiply(const std::int8_t* u, std::int64_t next, const char* codes, std::int64_t steps, bool adds,
              std::int32_t* sums) {
  constexpr std::int64_t stride = 4 * panel_columns;
  std::int32_t* const lower = sums + tile_rows * panel_columns;
  for (int half = 0; half < 2; ++half) {
    if (adds) {
      load_tile<0>(sums + 32 * half, stride);
      load_tile<1>(sums + 32 * half + 16, stride);
      if (two) load_tile<2>(lower + 32 * half, stride);
      if (two) load_tile<3>(lower + 32 * half + 16, stride);
    } else {
      zero_tile<0>();
      zero_tile<1>();
      if (two) zero_tile<2>();
      if (two) zero_tile<3>();
    }
    const std::int8_t* rows = u;
    const char* at = codes + 128 * half;
    for (std::int64_t s = 0; s < steps; ++s, rows += next, at += step_quads * quad_bytes) {
      load_tile<6>(at, quad_bytes);
      load_tile<4>(rows, piece);
      dot_signed<0, 4, 6>();
      load_tile<7>(at + 64, quad_bytes);
      dot_signed<1, 4, 7>();
      if (two) {
        load_tile<5>(rows + tile_rows * piece, piece);
        dot_signed<2, 5, 6>();
        dot_signed<3, 5, 7>();
      }
    }
    store_tile<0>(sums + 32 * half, stride);
    store_tile<1>(sums + 32 * half + 16, stride);
    if (two) store_tile<2>(lower + 32 * half, stride);
    if (two) store_tile<3>(lower + 32 * half + 16, stride);
  }
}

/// What a group adds to the outputs.
template <bool subtracts>
void end_group(const Q8Numbers& n, int rows, const std::int32_t* products, const std::int32_t* starts,
               const float* sums, const float* steps, float* y, std::int64_t y_stride) {
  __m512 scale[4], offset[4];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    scale[v] = _mm512_load_ps(n.s + 16 * v);
    if (subtracts) offset[v] = _mm512_load_ps(n.o + 16 * v);
  }
  for (int r = 0; r < rows; ++r, products += panel_columns, y += y_stride) {
    const __m512i start = _mm512_set1_epi32(starts[r]);
    const __m512 all = _mm512_set1_ps(sums[r]), step = _mm512_set1_ps(steps[r]);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const __m512i sum = _mm512_add_epi32(start, _mm512_load_si512(products + 16 * v));
      __m512 t = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale[v]);
      if (subtracts) t = _mm512_fmadd_ps(all, offset[v], t);
      _mm512_storeu_ps(y + 16 * v, _mm512_fmadd_ps(step, t, _mm512_loadu_ps(y + 16 * v)));
    }
  }
}

void run(const WeightOnlyQ8Args& a) {
  alignas(64) char opened[part_quads * quad_bytes];
  alignas(64) std::int32_t products[most_rows * panel_columns];
  for (int r = 0; r < a.rows; ++r)
    for (int j = 0; j < panel_columns; j += 16) _mm512_storeu_ps(a.y + r * a.y_stride + j, _mm512_setzero_ps());
  const std::int64_t numbers = row_bytes(a.scale, panel_columns) + zero_bytes(a.offset, a.scale);
  const std::int64_t next = std::int64_t{piece} * a.rows;
  const std::int8_t* u = a.u;
  const std::int32_t* starts = a.starts;
  const float *sums = a.sums, *steps = a.steps;
  const char* panel = a.panel;
  for (std::int64_t g = 0; g < a.group_count; ++g, starts += a.rows, sums += a.rows, steps += a.rows) {
    const WeightGroup& group = a.groups[g];
    Q8Numbers n;
    avx512::weight_only_q8_numbers(a, group, panel, &n);
    std::int64_t first = 0;
    const std::int64_t quads = group.quads();
    do {
      const std::int64_t count = quads - first < part_quads ? quads - first : part_quads;
      const std::int64_t whole = (count + step_quads - 1) / step_quads;
      const char* const codes = open(group, panel + numbers, first, count, opened);
      const bool last = first + count >= quads;
      for (int r = 0; r < a.rows; r += 2 * tile_rows) {
        std::int32_t* const to = products + r * panel_columns;
        const int rows = a.rows - r < 2 * tile_rows ? a.rows - r : 2 * tile_rows;
        if (rows > tile_rows)
          multiply<true>(u + r * piece, next, codes, whole, first > 0, to);
        else
          multiply<false>(u + r * piece, next, codes, whole, first > 0, to);
        if (!last) continue;
        float* const y = a.y + r * a.y_stride;
        if (a.offset == Offset::none)
          end_group<false>(n, rows, to, starts + r, sums + r, steps + r, y, a.y_stride);
        else
          end_group<true>(n, rows, to, starts + r, sums + r, steps + r, y, a.y_stride);
      }
      u += whole * next;
      first += count;
    } while (first < quads);
    panel += numbers + 64 * group.lines;
  }
}

}  // namespace

const WeightOnlyQ8Tile weight_only_q8_tile = {
    most_rows, 1, avx512::weight_only_q8_codes, run, piece, tile_rows, configure_tiles, release_tiles};

}  // namespace bie::kernels::cpu::BIE_AMX_SET
