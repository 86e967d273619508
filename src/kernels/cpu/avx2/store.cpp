#include "kernels/cpu/avx2/store.h"

#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/with_dtype.h"

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
std::uint64_t signs8(const std::int32_t* acc, __m256 scale, const float* bias) {
  __m256 y = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(acc))), scale);
  if (bias != nullptr) y = _mm256_add_ps(y, _mm256_loadu_ps(bias));
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(y, _mm256_setzero_ps(), _CMP_GE_OQ)));
}

}  // namespace

void store(const StoreArgs& a) {
  return with_dtype<Dtype::s32>(a.dtype, [&a](auto dtype) { return store_as<dtype.value>(a); });
}

std::uint64_t signs_of(const std::int32_t* acc, int count, float scale, const float* bias) {
  const __m256 by = _mm256_set1_ps(scale);
  std::uint64_t bits = 0;
  int i = 0;
  for (; i + 8 <= count; i += 8) bits |= signs8(acc + i, by, bias == nullptr ? nullptr : bias + i) << i;
  if (i == count) return bits;
  float last[8] = {};
  if (bias != nullptr) std::memcpy(last, bias + i, static_cast<std::size_t>(count - i) * 4);
  bits |= signs8(acc + i, by, bias == nullptr ? nullptr : last) << i;  // a tile's sums go on to whole vectors
  return bits & ((std::uint64_t{1} << count) - 1);
}

}  // namespace bie::kernels::cpu::avx2
