// Fields of bytes by one instruction (GFNI): a byte times a matrix of bits is its field, moved down. A shift and a mask
// would be two, and the shift runs on one port of Intel's CPUs.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace bie::kernels::cpu {

/// Matrices that take a byte to its fields of one width, lowest field first.
struct FieldMatrices {
  std::uint64_t of_field[8] = {};

  /// A field of the byte becomes `field << up`. Bit i of a product is the parity of the byte and byte 7 - i of the
  /// matrix.
  constexpr FieldMatrices(int width, int up) {
    for (int f = 0; f < 8 / width; ++f)
      for (int i = 0; i < width; ++i) of_field[f] |= std::uint64_t{1} << (8 * (7 - up - i) + width * f + i);
  }
};
inline constexpr FieldMatrices doubled_bits{1, 1};
inline constexpr FieldMatrices fields_of_width[] = {{1, 0}, {2, 0}, {4, 0}, {8, 0}};

/// For codes of 1, 2, 4 or 8 bits; those of 1 bit doubled where `doubles`.
inline const std::uint64_t* field_matrices(int width, bool doubles) {
  const int log2 = width == 1 ? 0 : width == 2 ? 1 : width == 4 ? 2 : 3;
  return (doubles ? doubled_bits : fields_of_width[log2]).of_field;
}

[[gnu::always_inline]] inline __m512i field_of(__m512i bytes, std::uint64_t matrix) {
  return _mm512_gf2p8affine_epi64_epi8(bytes, _mm512_set1_epi64(static_cast<long long>(matrix)), 0);
}

}  // namespace bie::kernels::cpu
