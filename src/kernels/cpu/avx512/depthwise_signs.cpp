// Pixels of signs: packing, full adders over 512 outputs, and counts to floats.
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::avx512 {
namespace {

constexpr int plane_bytes = 128;

__mmask16 first_lanes(std::int64_t count) {
  return count >= 16 ? __mmask16(0xffff) : count <= 0 ? __mmask16(0) : static_cast<__mmask16>((1u << count) - 1);
}

/// The signs of up to 64 neighbours.
struct Packer {
  __m512 odd[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};

  /// bias(v): that of sixteen of them.
  template <class Bias>
  std::uint64_t whole(const float* x, const Bias& bias) {
    std::uint64_t signs = 0;
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) signs |= sixteen(v, _mm512_add_ps(_mm512_loadu_ps(x + 16 * v), bias(v)), 0xffff);
    return signs;
  }
  std::uint64_t some(const float* x, const float* bias, std::int64_t count) {
    std::uint64_t signs = 0;
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const __mmask16 mask = first_lanes(count - 16 * v);
      __m512 xs = _mm512_maskz_loadu_ps(mask, x + 16 * v);
      if (bias != nullptr) xs = _mm512_add_ps(xs, _mm512_maskz_loadu_ps(mask, bias + 16 * v));
      signs |= sixteen(v, xs, mask);
    }
    return signs;
  }
  bool finite() const {
    const __m512 all = _mm512_add_ps(_mm512_add_ps(odd[0], odd[1]), _mm512_add_ps(odd[2], odd[3]));
    return _mm512_cmp_ps_mask(all, all, _CMP_UNORD_Q) == 0;
  }

 private:
  std::uint64_t sixteen(int v, __m512 xs, __mmask16 mask) {  // a sum of x * 0 is NaN once a NaN or infinity was seen
    odd[v] = _mm512_fmadd_ps(xs, _mm512_setzero_ps(), odd[v]);
    return static_cast<std::uint64_t>(_mm512_mask_cmp_ps_mask(mask, xs, _mm512_setzero_ps(), _CMP_GE_OQ)) << (16 * v);
  }
};

void store_some(std::uint8_t* to, std::uint64_t signs, std::int64_t count) {
  const auto bytes = static_cast<__mmask16>((1u << count / 8) - 1);
  _mm_mask_storeu_epi8(to, bytes, _mm_cvtsi64_si128(static_cast<long long>(signs)));
}

/// Elements that follow one another without regard to pixels: put(first, signs, count) for each 64 of them.
template <class Put>
bool pack_stream(const PackPixelsArgs& a, const Put& put) {
  Packer packer;
  const std::int64_t all = a.pixels * a.channels;
  std::int64_t i = 0;
  if (a.bias == nullptr) {
    for (; i + 64 <= all; i += 64) put(i, packer.whole(a.x + i, [](int) { return _mm512_setzero_ps(); }), 64);
    if (i < all) put(i, packer.some(a.x + i, nullptr, all - i), all - i);
    return packer.finite();
  }
  alignas(64) float bias[64];  // of these, which go round the channels
  std::int64_t channel = 0;
  for (; i < all; i += 64) {
    const std::int64_t count = all - i < 64 ? all - i : 64;
    for (int v = 0; v < 4; ++v) {
      _mm512_store_ps(bias + 16 * v, _mm512_loadu_ps(a.bias + channel));
      channel += channel + 16 < a.channels ? 16 : 16 - a.channels;
    }
    put(i,
        count == 64 ? packer.whole(a.x + i, [&](int v) { return _mm512_load_ps(bias + 16 * v); })
                    : packer.some(a.x + i, bias, count),
        count);
  }
  return packer.finite();
}

bool pack_pixels(const PackPixelsArgs& a) {
  Packer packer;
  std::int64_t phase = 0, position = 0;
  for (std::int64_t p = 0; p < a.pixels; ++p) {
    std::uint8_t* const out = a.out + phase * a.phase_bytes + position * a.channels / 8;
    if (++phase == a.phases) phase = 0, ++position;
    const float* const x = a.x + p * a.channels;
    for (std::int64_t c = 0; c < a.channels; c += 64) {
      const std::int64_t count = a.channels - c < 64 ? a.channels - c : 64;
      store_some(out + c / 8, packer.some(x + c, a.bias == nullptr ? nullptr : a.bias + c, count), count);
    }
  }
  return packer.finite();
}

bool pack(const PackPixelsArgs& a) {
  if (a.phases == 1)
    return pack_stream(
        a, [&](std::int64_t i, std::uint64_t signs, std::int64_t count) { store_some(a.out + i / 8, signs, count); });
  if (64 % a.channels != 0) return pack_pixels(a);
  std::int64_t phase = 0, position = 0;
  const std::int64_t pixel_bytes = a.channels / 8;
  return pack_stream(a, [&](std::int64_t, std::uint64_t signs, std::int64_t count) {
    for (std::int64_t c = 0; c < count; c += a.channels) {
      std::uint8_t* const out = a.out + phase * a.phase_bytes + position * pixel_bytes;
      const std::uint64_t pixel = signs >> c;
      switch (pixel_bytes) {  // whole words
        case 1: std::memcpy(out, &pixel, 1); break;
        case 2: std::memcpy(out, &pixel, 2); break;
        case 4: std::memcpy(out, &pixel, 4); break;
        default: std::memcpy(out, &pixel, 8); break;
      }
      if (++phase == a.phases) phase = 0, ++position;
    }
  });
}

/// sum of three bits a place; the carry is returned.
__m512i add(__m512i& sum, __m512i b, __m512i c) {
  const __m512i carry = _mm512_ternarylogic_epi64(sum, b, c, 0xe8);
  sum = _mm512_ternarylogic_epi64(sum, b, c, 0x96);
  return carry;
}

/// Taps are added eight at a time (Harley and Seal's counter).
template <int V, bool masked>
void count_vectors(const CountTapsArgs& a) {
  const auto tap = [&](std::int64_t t, int v) {
    const __m512i bits = _mm512_loadu_si512(a.taps[t] + v * a.step), weights = _mm512_load_si512(a.weights[t]);
    if constexpr (masked)  // (bits ^ weights) & inside
      return _mm512_ternarylogic_epi64(bits, weights, _mm512_loadu_si512(a.inside[t] + v * a.step), 0x28);
    return _mm512_xor_si512(bits, weights);
  };
  const __m512i zero = _mm512_setzero_si512();
  __m512i ones[V], twos[V], fours[V], eights[V], sixteens[V], last[V];
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    ones[v] = tap(0, v);
    twos[v] = fours[v] = eights[v] = sixteens[v] = last[v] = zero;
  }
  for (std::int64_t t = 1; t < a.count; t += 8) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      const __m512i two0 = add(ones[v], tap(t, v), tap(t + 1, v)), two1 = add(ones[v], tap(t + 2, v), tap(t + 3, v));
      const __m512i four0 = add(twos[v], two0, two1);
      const __m512i two2 = add(ones[v], tap(t + 4, v), tap(t + 5, v)),
                    two3 = add(ones[v], tap(t + 6, v), tap(t + 7, v));
      const __m512i four1 = add(twos[v], two2, two3);
      const __m512i eight = add(fours[v], four0, four1);
      const __m512i sixteen = _mm512_and_si512(eights[v], eight);
      eights[v] = _mm512_xor_si512(eights[v], eight);
      last[v] = _mm512_ternarylogic_epi64(last[v], sixteens[v], sixteen, 0x78);  // last ^ (sixteens & sixteen)
      sixteens[v] = _mm512_xor_si512(sixteens[v], sixteen);
    }
  }
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    const __m512i all[count_planes] = {ones[v], twos[v], fours[v], eights[v], sixteens[v], last[v]};
#pragma GCC unroll 6
    for (int k = 0; k < count_planes; ++k) _mm512_store_si512(a.planes + k * plane_bytes + 64 * v, all[k]);
  }
}

void count(const CountTapsArgs& a) {
  if (a.inside == nullptr) return a.vectors == 2 ? count_vectors<2, false>(a) : count_vectors<1, false>(a);
  return a.vectors == 2 ? count_vectors<2, true>(a) : count_vectors<1, true>(a);
}

void write(const WriteCountsArgs& a) {
  const __m512 scale = _mm512_set1_ps(a.scale);
  const __m512i inside = _mm512_set1_epi8(static_cast<char>(a.inside));
  for (std::int64_t i = 0; i < a.count; i += 64) {
    __m512i sums = inside;
#pragma GCC unroll 6
    for (int k = 0; k < count_planes; ++k) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, a.planes + k * plane_bytes + i / 8, sizeof bits);
      sums = _mm512_mask_sub_epi8(sums, bits, sums, _mm512_set1_epi8(static_cast<char>(2 << k)));
    }
    const __m128i part[4] = {_mm512_castsi512_si128(sums), _mm512_extracti32x4_epi32(sums, 1),
                             _mm512_extracti32x4_epi32(sums, 2), _mm512_extracti32x4_epi32(sums, 3)};
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const std::int64_t left = a.count - i - 16 * v;
      if (left <= 0) break;
      const __m512 whole = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(part[v]));
      _mm512_mask_storeu_ps(a.y + i + 16 * v, first_lanes(left), _mm512_mul_ps(whole, scale));
    }
  }
}

}  // namespace

const SignPixels sign_pixels = {pack, count, write};

}  // namespace bie::kernels::cpu::avx512
