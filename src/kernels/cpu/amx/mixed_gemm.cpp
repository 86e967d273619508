// mixed tile: tdpbf16ps. A float32 is the sum of three bfloat16 parts and a code is one, so a product of 24 bits is
// three products of tiles, and one of bfloat16 is one. a: two tiles of 16 rows, [step][part][row][32 of k]; b: [pair of
// k][column][2], bfloat16.
#include "kernels/cpu/gemm/mixed_gemm.h"

#include "kernels/cpu/amx/tiles.h"

namespace bie::kernels::cpu::BIE_AMX_SET {

extern const MixedTile mixed_tile, mixed_tile_of_bf16;

namespace {

constexpr int most_rows = 32, most_columns = 32, step = 32;
constexpr int float_parts = 3;
constexpr int tile_rows = 16, tile_row_bytes = 64, tile_bytes = tile_rows * tile_row_bytes;

std::int64_t steps_of(std::int64_t k) { return (k + step - 1) / step; }

/// The leading 8 bits of each number, and what they leave; nothing where it is not finite.
__m512i lead(__m512& rest) {
  const __m512i infinite = _mm512_set1_epi32(0x7f800000);
  const __m512i top = _mm512_and_si512(_mm512_castps_si512(rest), _mm512_set1_epi32(-65536));
  const __mmask16 finite = _mm512_cmplt_epu32_mask(_mm512_and_si512(top, infinite), infinite);
  rest = _mm512_maskz_sub_ps(finite, rest, _mm512_castsi512_ps(top));
  return top;
}

/// Two vectors of float32 whose last 16 bits are 0 as bfloat16, those of `even` and `odd` by turns.
__m512i pairs(__m512i even, __m512i odd) { return _mm512_or_si512(_mm512_srli_epi32(even, 16), odd); }

/// Which of 16 elements from `first` on are among `left`.
__mmask16 among(std::int64_t left, int first) {
  return static_cast<__mmask16>(left >= first + 16 ? 0xffff : left <= first ? 0 : (1 << (left - first)) - 1);
}

/// Where 16 rows of a tile begin.
__m512i row_places() {
  return _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                            _mm512_set1_epi32(tile_row_bytes));
}

/// One tile of rows of bfloat16; 32 consecutive elements of a matrix row become one row of the AMX tile.
void copy_rows(const MixedSplitArgs& a) {
  for (std::int64_t s = 0; s < steps_of(a.k); ++s) {
    const std::int64_t left = a.k - s * step;
    const auto here = static_cast<__mmask32>(among(left, 0) | static_cast<std::uint32_t>(among(left, 16)) << 16);
    for (int r = 0; r < a.rows; ++r) {
      const auto* const from = static_cast<const std::uint16_t*>(a.a) + r * a.row + s * step;
      _mm512_store_si512(static_cast<char*>(a.out) + s * tile_bytes + r * tile_row_bytes,
                         _mm512_maskz_loadu_epi16(here, from));
    }
  }
}

/// The same, where 16 neighbours are a column of the tile.
void copy_columns(const MixedSplitArgs& a) {
  const auto here = static_cast<__mmask16>(0xffff >> (16 - a.rows));
  const __m512i places = row_places();
  const auto column = [&a, here](std::int64_t l) {
    if (l >= a.k) return _mm512_setzero_si512();
    const auto* const from = static_cast<const std::uint16_t*>(a.a) + l * a.column;
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(here, from));
  };
  for (std::int64_t l = 0; l < steps_of(a.k) * step; l += 2)
    _mm512_i32scatter_epi32(static_cast<char*>(a.out) + l / step * tile_bytes + 2 * (l % step), places,
                            _mm512_or_si512(column(l), _mm512_slli_epi32(column(l + 1), 16)), 1);
}

/// One tile of rows of float32 as bfloat16 parts.
void split_rows(const MixedSplitArgs& a) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  for (std::int64_t s = 0; s < steps_of(a.k); ++s) {
    char* const out = static_cast<char*>(a.out) + s * float_parts * tile_bytes;
    const std::int64_t left = a.k - s * step;
    for (int r = 0; r < a.rows; ++r) {
      const float* const from = static_cast<const float*>(a.a) + r * a.row + s * step;
      const __m512 low = _mm512_maskz_loadu_ps(among(left, 0), from);
      const __m512 high = _mm512_maskz_loadu_ps(among(left, 16), from + 16);
      __m512 x = _mm512_permutex2var_ps(low, even, high), y = _mm512_permutex2var_ps(low, odd, high);
      for (int p = 0; p < float_parts; ++p) {
        const __m512i top = lead(x);
        _mm512_store_si512(out + p * tile_bytes + r * tile_row_bytes, pairs(top, lead(y)));
      }
    }
  }
}

/// The same, where 16 neighbours are a column of the tile.
void split_columns(const MixedSplitArgs& a) {
  const __m512i places = row_places();
  const auto* const from = static_cast<const float*>(a.a);
  const auto here = static_cast<__mmask16>(0xffff >> (16 - a.rows));
  for (std::int64_t l = 0; l < steps_of(a.k) * step; l += 2) {
    char* const out = static_cast<char*>(a.out) + l / step * float_parts * tile_bytes + 2 * (l % step);
    __m512 x = _mm512_maskz_loadu_ps(l < a.k ? here : __mmask16(0), from + l * a.column);
    __m512 y = _mm512_maskz_loadu_ps(l + 1 < a.k ? here : __mmask16(0), from + (l + 1) * a.column);
    for (int p = 0; p < float_parts; ++p) {
      const __m512i top = lead(x);
      _mm512_i32scatter_epi32(out + p * tile_bytes, places, pairs(top, lead(y)), 1);
    }
  }
}

template <int parts>
void split(const MixedSplitArgs& a) {
  constexpr std::int64_t element = parts == 1 ? 2 : 4;
  const std::int64_t bytes = steps_of(a.k) * parts * tile_bytes;
  if (a.rows < most_rows) std::memset(a.out, 0, static_cast<std::size_t>(2 * bytes));
  MixedSplitArgs tile = a;
  for (int row = 0; row < a.rows; row += tile_rows) {
    tile.a = static_cast<const char*>(a.a) + row * a.row * element;
    tile.rows = a.rows - row < tile_rows ? a.rows - row : tile_rows;
    tile.out = static_cast<char*>(a.out) + row / tile_rows * bytes;
    if (parts == 1)
      a.column == 1 ? copy_rows(tile) : copy_columns(tile);
    else
      a.column == 1 ? split_rows(tile) : split_columns(tile);
  }
}

/// 16 codes as float32.
__m512i codes(const float* b, __mmask16 here) { return _mm512_castps_si512(_mm512_maskz_loadu_ps(here, b)); }
__m512i codes(const std::int8_t* b, __mmask16 here) {
  const __m128i bytes = _mm_maskz_loadu_epi8(here, b);
  return _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)));
}

template <class T>
void open_as(const MixedOpenArgs& a) {
  const T* const b = static_cast<const T*>(a.b);
  auto* const out = static_cast<std::uint16_t*>(a.out);
  const __mmask16 here[2] = {static_cast<__mmask16>(a.columns >= 16 ? 0xffff : (1 << a.columns) - 1),
                             static_cast<__mmask16>(a.columns <= 16 ? 0 : 0xffff >> (32 - a.columns))};
  for (std::int64_t l = 0; l < steps_of(a.k) * step; l += 2)
    for (int v = 0; v < 2; ++v) {
      const T* const at = b + l * a.stride + 16 * v;
      const __m512i even = codes(at, l < a.k ? here[v] : __mmask16(0));
      const __m512i odd = codes(at + a.stride, l + 1 < a.k ? here[v] : __mmask16(0));
      _mm512_store_si512(out + l * most_columns + 32 * v, pairs(even, odd));
    }
}

void open(const MixedOpenArgs& a) { a.dtype == Dtype::f32 ? open_as<float>(a) : open_as<std::int8_t>(a); }

template <int parts, bool two>
void multiply(const MixedTileArgs& a, float* sums) {
  zero_tile<0>();
  zero_tile<1>();
  if (two) zero_tile<2>();
  if (two) zero_tile<3>();
  const std::int64_t steps = steps_of(a.k);
  const auto* panel = static_cast<const std::uint16_t*>(a.columns_of_b);
  const char *upper = static_cast<const char*>(a.rows_of_a), *lower = upper + steps * parts * tile_bytes;
  for (std::int64_t s = 0; s < steps; ++s, panel += step * most_columns) {
    load_tile<6>(panel, 4 * most_columns);
    load_tile<7>(panel + 32, 4 * most_columns);
#pragma GCC unroll 3
    for (int p = 0; p < parts; ++p, upper += tile_bytes, lower += tile_bytes) {
      load_tile<4>(upper, tile_row_bytes);
      dot_bf16<0, 4, 6>();
      dot_bf16<1, 4, 7>();
      if (!two) continue;
      load_tile<5>(lower, tile_row_bytes);
      dot_bf16<2, 5, 6>();
      dot_bf16<3, 5, 7>();
    }
  }
  constexpr std::int64_t stride = 4 * most_columns;
  store_tile<0>(sums, stride);
  store_tile<1>(sums + 16, stride);
  if (two) store_tile<2>(sums + tile_rows * most_columns, stride);
  if (two) store_tile<3>(sums + tile_rows * most_columns + 16, stride);
}

template <int parts>
void run(const MixedTileArgs& a) {
  alignas(64) float sums[most_rows * most_columns];
  a.rows > tile_rows ? multiply<parts, true>(a, sums) : multiply<parts, false>(a, sums);
  const __m512 scale = _mm512_set1_ps(a.scale);
  for (int v = 0; 16 * v < a.columns; ++v) {
    const auto here = static_cast<__mmask16>(a.columns >= 16 * v + 16 ? 0xffff : (1 << (a.columns - 16 * v)) - 1);
    for (int r = 0; r < a.rows; ++r) {
      float* const y = a.y + r * a.y_stride + 16 * v;
      __m512 sum = _mm512_load_ps(sums + r * most_columns + 16 * v);
      if (a.adds) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(here, y));
      _mm512_mask_storeu_ps(y, here, _mm512_mul_ps(sum, scale));
    }
  }
}

template <int parts>
constexpr MixedTile tile_of = {most_rows,  most_columns,    step,         2 * parts, 2, 1024, split<parts>, open,
                               run<parts>, configure_tiles, release_tiles};

}  // namespace

const MixedTile mixed_tile = tile_of<float_parts>;
const MixedTile mixed_tile_of_bf16 = tile_of<1>;

}  // namespace bie::kernels::cpu::BIE_AMX_SET
