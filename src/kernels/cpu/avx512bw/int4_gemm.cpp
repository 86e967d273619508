// s4xs4 tile: four codes per lane and unit; byte i of a unit holds code i in its low nibble and code i + 2 in its high.
// vpmaddubsw of unsigned q + 8 (0..15) with signed weights cannot saturate: a pair is at most 2 * 15 * 8.
#include "kernels/cpu/avx512bw/vectors.h"

namespace bie::kernels::cpu::avx512bw {
namespace {

struct Product : Vectors512 {
  static constexpr int lanes = 32, unit_bytes = 2, parts = 2;
  static constexpr std::int64_t max_units = 64;  // two pairs a unit: 64 * 2 * 240 = 30720 fits an int16
  static Vector weights(const char* at, int part) {
    const Vector values = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1));
    const Vector both = _mm512_load_si512(at);
    const Vector nibbles = _mm512_and_si512(part == 0 ? both : _mm512_srli_epi16(both, 4), _mm512_set1_epi8(15));
    return _mm512_shuffle_epi8(values, nibbles);
  }
  static Vector broadcast(const char* row, std::int64_t unit, int part) {
    return _mm512_set1_epi16(reinterpret_cast<const std::int16_t*>(row)[2 * unit + part]);
  }
  static Vector add(Vector sum, Vector x, Vector w) { return _mm512_add_epi16(sum, _mm512_maddubs_epi16(x, w)); }
  static void flush(Vector sum, std::int32_t* acc) {
    add_to(acc, _mm512_cvtepi16_epi32(_mm512_castsi512_si256(sum)));
    add_to(acc + 16, _mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(sum, 1)));
  }
  static __m256i finish(__m256i sum, __m256i init) { return _mm256_add_epi32(sum, init); }
};

}  // namespace

const Tile s4xs4_tile = {Code::u8_s4,  Product::rows, 2 * Product::lanes,      4,          2,
                         avx2::encode, nullptr,       avx2::run_tile<Product>, avx2::store};

}  // namespace bie::kernels::cpu::avx512bw
