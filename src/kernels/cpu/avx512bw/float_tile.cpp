// Products of floats with floats and with 16-bit floats, of which one instruction widens sixteen.
#include <immintrin.h>

#include "kernels/cpu/gemm/float_tile_loop.h"

namespace bie::kernels::cpu {
namespace {

struct Vectors {
  using Vector = __m512;
  static constexpr int lanes = 16, most = 12, sums = 24;
  static Vector load_sums(const float* at) { return _mm512_loadu_ps(at); }
  static Vector broadcast(float x) { return _mm512_set1_ps(x); }
  static Vector add(Vector x, Vector w, Vector sum) { return _mm512_fmadd_ps(x, w, sum); }
  static void store(float* to, Vector v) { _mm512_storeu_ps(to, v); }
  static __m256i halves(const std::uint16_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }
};

struct F32 : Vectors {
  using Element = float;
  static Vector load(const float* at) { return _mm512_loadu_ps(at); }
};

struct F16 : Vectors {
  using Element = std::uint16_t;
  static Vector load(const std::uint16_t* at) { return _mm512_cvtph_ps(halves(at)); }
};

struct Bf16 : Vectors {
  using Element = std::uint16_t;
  static Vector load(const std::uint16_t* at) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves(at)), 16));
  }
};

}  // namespace

const FloatTile<float> avx512bw::f32_tile = float_tile<F32>();
const FloatTile<std::uint16_t> avx512bw::f16_tile = float_tile<F16>();
const FloatTile<std::uint16_t> avx512bw::bf16_tile = float_tile<Bf16>();

}  // namespace bie::kernels::cpu
