// 256-bit vector operations for weight-only products with integer activations. Used by avx2 and avxvnni.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "bie/kernels/dtype.h"

namespace bie::kernels::cpu::avx2 {
namespace {

struct Q8Vectors {
  using Ints = __m256i;
  static constexpr int lanes = 8, columns = 2;

  template <Dtype dtype>
  static __m256 floats(const char* at) {
    if constexpr (dtype == Dtype::f32) return _mm256_load_ps(reinterpret_cast<const float*>(at));
    const __m128i halves = _mm_load_si128(reinterpret_cast<const __m128i*>(at));
    if constexpr (dtype == Dtype::f16) return _mm256_cvtph_ps(halves);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  static __m256 of_bytes(const char* at) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at))));
  }
  static __m256 of_ints(__m256i x) { return _mm256_cvtepi32_ps(x); }
  static __m256 load(const float* at) { return _mm256_loadu_ps(at); }
  static void store(float* at, __m256 x) { _mm256_storeu_ps(at, x); }
  static __m256 splat(float x) { return _mm256_set1_ps(x); }
  static __m256i splat(std::int32_t x) { return _mm256_set1_epi32(x); }
  static __m256i plus(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
  static __m256 less(__m256 a, __m256 b) { return _mm256_sub_ps(a, b); }
  static __m256 times(__m256 a, __m256 b) { return _mm256_mul_ps(a, b); }
  static __m256 times_plus(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
  static __m256 times_less(__m256 a, __m256 b, __m256 c) { return _mm256_fmsub_ps(a, b, c); }

  static __m256i four_bytes(const std::int8_t* at) {
    std::int32_t four;
    std::memcpy(&four, at, 4);
    return _mm256_set1_epi32(four);
  }
  /// The codes at bit width * f of the bytes of a line.
  template <int width>
  static __m256i field(const char* at, int f) {
    __m256i line = _mm256_load_si256(reinterpret_cast<const __m256i*>(at));
    if (f > 0) line = _mm256_srli_epi32(line, width * f);
    return width == 8 ? line : _mm256_and_si256(line, _mm256_set1_epi8(static_cast<char>((1 << width) - 1)));
  }
};

}  // namespace
}  // namespace bie::kernels::cpu::avx2
