// Products of floats with 16-bit floats: one instruction widens sixteen of them.
#include <immintrin.h>

#include "kernels/cpu/gemm/half_gemm_loop.h"

namespace bie::kernels::cpu {
namespace {

struct Vectors {
  using Vector = __m512;
  static constexpr int lanes = 16, most = 12;
  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector broadcast(float x) { return _mm512_set1_ps(x); }
  static Vector add(Vector x, Vector w, Vector sum) { return _mm512_fmadd_ps(x, w, sum); }
  static void store(float* to, Vector v) { _mm512_storeu_ps(to, v); }
  static __m256i halves(const std::uint16_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }
};

struct F16 : Vectors {
  static Vector load(const std::uint16_t* at) { return _mm512_cvtph_ps(halves(at)); }
};

struct Bf16 : Vectors {
  static Vector load(const std::uint16_t* at) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves(at)), 16));
  }
};

}  // namespace

const HalfGemmTile avx512bw::f16_gemm_tile = half_tile<F16>();
const HalfGemmTile avx512bw::bf16_gemm_tile = half_tile<Bf16>();

}  // namespace bie::kernels::cpu
