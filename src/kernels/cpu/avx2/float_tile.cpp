// Products of floats with floats and with 16-bit floats, of which one instruction widens eight.
#include <immintrin.h>

#include "kernels/cpu/gemm/float_tile_loop.h"

namespace bie::kernels::cpu {
namespace {

struct Vectors {
  using Vector = __m256;
  static constexpr int lanes = 8, most = 6, sums = 12;
  static Vector load_sums(const float* at) { return _mm256_loadu_ps(at); }
  static Vector broadcast(float x) { return _mm256_set1_ps(x); }
  static Vector add(Vector x, Vector w, Vector sum) { return _mm256_fmadd_ps(x, w, sum); }
  static void store(float* to, Vector v) { _mm256_storeu_ps(to, v); }
  static __m128i halves(const std::uint16_t* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }
};

struct F32 : Vectors {
  using Element = float;
  static Vector load(const float* at) { return _mm256_loadu_ps(at); }
};

struct F16 : Vectors {
  using Element = std::uint16_t;
  static Vector load(const std::uint16_t* at) { return _mm256_cvtph_ps(halves(at)); }
};

struct Bf16 : Vectors {
  using Element = std::uint16_t;
  static Vector load(const std::uint16_t* at) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves(at)), 16));
  }
};

}  // namespace

const FloatTile<float> avx2::f32_tile = float_tile<F32>();
const FloatTile<std::uint16_t> avx2::f16_tile = float_tile<F16>();
const FloatTile<std::uint16_t> avx2::bf16_tile = float_tile<Bf16>();

}  // namespace bie::kernels::cpu
