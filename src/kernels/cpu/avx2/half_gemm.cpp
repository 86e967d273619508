// Products of floats with 16-bit floats: one instruction widens eight of them.
#include <immintrin.h>

#include "kernels/cpu/gemm/half_gemm_loop.h"

namespace bie::kernels::cpu {
namespace {

struct Vectors {
  using Vector = __m256;
  static constexpr int lanes = 8, most = 6;
  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector broadcast(float x) { return _mm256_set1_ps(x); }
  static Vector add(Vector x, Vector w, Vector sum) { return _mm256_fmadd_ps(x, w, sum); }
  static void store(float* to, Vector v) { _mm256_storeu_ps(to, v); }
  static __m128i halves(const std::uint16_t* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }
};

struct F16 : Vectors {
  static Vector load(const std::uint16_t* at) { return _mm256_cvtph_ps(halves(at)); }
};

struct Bf16 : Vectors {
  static Vector load(const std::uint16_t* at) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves(at)), 16));
  }
};

}  // namespace

const HalfGemmTile avx2::f16_gemm_tile = half_tile<F16>();
const HalfGemmTile avx2::bf16_gemm_tile = half_tile<Bf16>();

}  // namespace bie::kernels::cpu
