#include "kernels/cpu/avx2/store.h"

#include <immintrin.h>

#include <cstring>

namespace bie::kernels::cpu::avx2 {
namespace {

/// Round to nearest even; NaN becomes 0x7fc0.
__m128i to_bf16(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  const __m256i words = _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc0), nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

template <Dtype D>
void store8(__m256i acc, __m256 scale, void* out) {
  const __m256 y = _mm256_mul_ps(_mm256_cvtepi32_ps(acc), scale);
  if constexpr (D == Dtype::s32)
    _mm256_storeu_si256(static_cast<__m256i*>(out), acc);
  else if constexpr (D == Dtype::f32)
    _mm256_storeu_ps(static_cast<float*>(out), y);
  else if constexpr (D == Dtype::bf16)
    _mm_storeu_si128(static_cast<__m128i*>(out), to_bf16(y));
  else
    _mm_storeu_si128(static_cast<__m128i*>(out), _mm256_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

template <Dtype D>
void store_as(const StoreArgs& a) {
  constexpr std::int64_t bytes = D == Dtype::f32 || D == Dtype::s32 ? 4 : 2;
  const __m256 scale = _mm256_set1_ps(a.scale);
  char* out = static_cast<char*>(a.out);
  std::int64_t i = 0;
  for (; i + 8 <= a.count; i += 8)
    store8<D>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(a.acc + i)), scale, out + i * bytes);
  if (i == a.count) return;
  std::int32_t acc[8] = {};
  char last[32];
  std::memcpy(acc, a.acc + i, static_cast<std::size_t>(a.count - i) * 4);
  store8<D>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(acc)), scale, last);
  std::memcpy(out + i * bytes, last, static_cast<std::size_t>((a.count - i) * bytes));
}

/// A byte of signs.
std::uint8_t signs8(__m256i acc, __m256 scale, __m256 bias) {
  const __m256 y = _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(acc), scale), bias);
  return static_cast<std::uint8_t>(_mm256_movemask_ps(_mm256_cmp_ps(y, _mm256_setzero_ps(), _CMP_GE_OQ)));
}

void store_signs(const StoreArgs& a) {
  const __m256 scale = _mm256_set1_ps(a.scale);
  std::uint8_t* out = static_cast<std::uint8_t*>(a.out);
  std::int64_t i = 0;
  for (; i + 8 <= a.count; i += 8)
    out[i / 8] = signs8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(a.acc + i)), scale,
                        a.bias == nullptr ? _mm256_setzero_ps() : _mm256_loadu_ps(a.bias + i));
  if (i == a.count) return;
  const std::int64_t left = a.count - i;
  std::int32_t acc[8] = {};
  float bias[8] = {};
  std::memcpy(acc, a.acc + i, static_cast<std::size_t>(left) * 4);
  if (a.bias != nullptr) std::memcpy(bias, a.bias + i, static_cast<std::size_t>(left) * 4);
  const unsigned signs =
      signs8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(acc)), scale, _mm256_loadu_ps(bias));
  out[i / 8] = static_cast<std::uint8_t>(signs & ((1u << left) - 1));
}

}  // namespace

void store(const StoreArgs& a) {
  switch (a.dtype) {
    case Dtype::bf16: return store_as<Dtype::bf16>(a);
    case Dtype::f16: return store_as<Dtype::f16>(a);
    case Dtype::s32: return store_as<Dtype::s32>(a);
    case Dtype::bits: return store_signs(a);
    default: return store_as<Dtype::f32>(a);
  }
}

}  // namespace bie::kernels::cpu::avx2
