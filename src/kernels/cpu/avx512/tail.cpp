// Epilogue of a tile (Conv2dTail): 64 results at a time, of one row or of neighbouring rows that have few outputs.
#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/avx512/quantiser.h"
#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::avx512 {
namespace {

__m512 numbers(const float* from, __mmask16 mask, float otherwise) {
  return from == nullptr ? _mm512_set1_ps(otherwise) : _mm512_maskz_loadu_ps(mask, from);
}

/// V vectors a row, 4 / V rows at a time.
template <int V>
struct Tail {
  static constexpr int together = 4 / V;

  const TailArgs& a;
  const Quantiser quantiser;
  const bool bends;
  __mmask16 masks[V];
  __m512 y_scale, slope, scale[V], shift[V], bias[V], sum_bias[V];

  explicit Tail(const TailArgs& args)
      : a(args),
        quantiser(args),
        bends(args.cuts || args.slope != 1.0f),
        y_scale(_mm512_set1_ps(args.y_scale)),
        slope(_mm512_set1_ps(args.slope)) {
    for (int v = 0; v < V; ++v) {
      masks[v] = v + 1 < V ? __mmask16(0xffff) : static_cast<__mmask16>(0xffff >> (16 * V - a.columns));
      const auto at = [&](const float* from, float otherwise) {
        return numbers(from == nullptr ? nullptr : from + 16 * v, masks[v], otherwise);
      };
      scale[v] = at(a.scale, 1.0f);
      shift[v] = at(a.shift, -0.0f);
      bias[v] = at(a.bias, 0.0f);
      sum_bias[v] = at(a.sum_bias, -0.0f);
    }
  }

  [[gnu::always_inline]] __m512 value(std::int64_t row, int v) const {
    const std::int64_t at = row * a.acc_stride + 16 * v, to = row * a.stride + 16 * v;
    __m512 y = a.sums != nullptr ? _mm512_add_ps(_mm512_loadu_ps(a.sums + at), sum_bias[v])
                                 : _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_loadu_si512(a.acc + at)), y_scale);
    y = _mm512_add_ps(_mm512_mul_ps(y, scale[v]), shift[v]);
    if (a.add != nullptr) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(masks[v], a.add + to));
    if (a.cuts)
      y = _mm512_max_ps(_mm512_setzero_ps(), y);  // the second one where none is larger: NaN and -0 stay
    else if (bends)
      y = _mm512_mask_mul_ps(y, _mm512_cmp_ps_mask(y, _mm512_setzero_ps(), _CMP_LT_OQ), y, slope);
    if (a.v != nullptr) _mm512_mask_storeu_ps(a.v + to, masks[v], y);
    return _mm512_maskz_add_ps(masks[v], y, bias[v]);
  }

  /// Stores the codes of `rows` rows, beginning with row `first`.
  [[gnu::always_inline]] void store(const __m512i bytes, std::int64_t first, int rows) const {
    std::int8_t* const to = a.codes + first * a.stride;
    const __mmask64 mask = ~__mmask64{0} >> (64 - a.columns);
    if constexpr (V > 2) {
      _mm512_mask_storeu_epi8(to, mask, bytes);
    } else if (rows == together && a.stride == 16 * V && a.columns == 16 * V) {
      _mm512_storeu_si512(to, bytes);
    } else if constexpr (V == 2) {
      const __mmask32 half = static_cast<__mmask32>(mask);
      _mm256_mask_storeu_epi8(to, half, _mm512_castsi512_si256(bytes));
      if (rows > 1) _mm256_mask_storeu_epi8(to + a.stride, half, _mm512_extracti64x4_epi64(bytes, 1));
    } else {
      const __mmask16 quarter = static_cast<__mmask16>(mask);
      _mm_mask_storeu_epi8(to, quarter, _mm512_castsi512_si128(bytes));
      if (rows > 1) _mm_mask_storeu_epi8(to + a.stride, quarter, _mm512_extracti32x4_epi32(bytes, 1));
      if (rows > 2) _mm_mask_storeu_epi8(to + 2 * a.stride, quarter, _mm512_extracti32x4_epi32(bytes, 2));
      if (rows > 3) _mm_mask_storeu_epi8(to + 3 * a.stride, quarter, _mm512_extracti32x4_epi32(bytes, 3));
    }
  }

  bool run() const {
    __m512 odd = _mm512_setzero_ps();  // sum of x * 0: NaN once a NaN or infinity was seen
    for (std::int64_t row = 0; row < a.rows; row += together) {
      const int rows = a.rows - row < together ? static_cast<int>(a.rows - row) : together;
      __m512 x[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        x[i] = _mm512_setzero_ps();
        if (i < together * V && i / V < rows) x[i] = value(row + i / V, i % V);
      }
      if (a.codes == nullptr) continue;
      __m512i q[4];
      if (a.signs) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          odd = _mm512_fmadd_ps(x[i], _mm512_setzero_ps(), odd);
          q[i] = _mm512_mask_mov_epi32(_mm512_set1_epi32(-1), _mm512_cmp_ps_mask(x[i], _mm512_setzero_ps(), _CMP_GE_OQ),
                                       _mm512_set1_epi32(1));
        }
      } else {
        quantiser.codes(x, q, odd);
      }
      const __m512i bytes = bytes_of(q);
      store(a.signs ? bytes : quantiser.clamped(bytes), row, rows);
    }
    return _mm512_cmp_ps_mask(odd, odd, _CMP_UNORD_Q) == 0;
  }
};

}  // namespace

bool tail(const TailArgs& a) {
  switch ((a.columns - 1) / 16) {
    case 0: return Tail<1>(a).run();
    case 1: return Tail<2>(a).run();
    case 2: return Tail<3>(a).run();
    default: return Tail<4>(a).run();
  }
}

}  // namespace bie::kernels::cpu::avx512
