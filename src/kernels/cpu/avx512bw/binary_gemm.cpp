// b1xb1 tile: one 32-bit word of signs a lane and unit; xor, popcount of bytes by two table look-ups.
#include "kernels/cpu/avx512bw/vectors.h"

namespace bie::kernels::cpu::avx512bw {
namespace {

struct Product : Vectors512 {
  static constexpr int lanes = 16, unit_bytes = 4, parts = 1;
  static constexpr std::int64_t max_units = 31;  // a byte counts at most 8 per unit and holds 255
  static Vector weights(const char* at, int) { return _mm512_load_si512(at); }
  static Vector broadcast(const char* row, std::int64_t unit, int) {
    return _mm512_set1_epi32(reinterpret_cast<const std::int32_t*>(row)[unit]);
  }
  static Vector add(Vector sum, Vector x, Vector w) {
    const Vector counts = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    const Vector low = _mm512_set1_epi8(15);
    const Vector differ = _mm512_xor_si512(x, w);
    const Vector bytes =
        _mm512_add_epi8(_mm512_shuffle_epi8(counts, _mm512_and_si512(differ, low)),
                        _mm512_shuffle_epi8(counts, _mm512_and_si512(_mm512_srli_epi16(differ, 4), low)));
    return _mm512_add_epi8(sum, bytes);
  }
  static void flush(Vector bytes, std::int32_t* acc) {
    const Vector pairs = _mm512_maddubs_epi16(bytes, _mm512_set1_epi8(1));
    add_to(acc, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
  }
  static __m256i finish(__m256i sum, __m256i k) { return _mm256_sub_epi32(k, _mm256_slli_epi32(sum, 1)); }
};

}  // namespace

const Tile b1xb1_tile = {Code::bits,   Product::rows,     2 * Product::lanes,      32,         4,
                         avx2::encode, avx2::sign_planes, avx2::run_tile<Product>, avx2::store};

}  // namespace bie::kernels::cpu::avx512bw
