// Weight-only products with integer activations by vpdpbusd of 256 bits.
#include "kernels/cpu/avx2/q8_vectors.h"
#include "kernels/cpu/avxvnni/tiles.h"
#include "kernels/cpu/portable/weight_only_q8_loop.h"

namespace bie::kernels::cpu::avxvnni {
namespace {

template <int>
struct Product {
  using Sum = __m256i;
  using Codes = __m256i;
  static constexpr int rows = weight_only_q8_rows;
  static constexpr bool starts = true;
  static constexpr int most = 0;
  static Codes codes(__m256i field) { return field; }
  template <int r>
  static __m256i row(const std::int8_t* u) {
    return avx2::Q8Vectors::four_bytes(u + 4 * r);
  }
  template <int r>
  static Sum add(Sum sum, Codes codes, __m256i by) {
    return BIE_DOT(sum, codes, by);
  }
};

}  // namespace

void BIE_ENCODING::weight_only_q8(const WeightOnlyQ8Args& args) { q8::run<avx2::Q8Vectors, Product>(args); }

}  // namespace bie::kernels::cpu::avxvnni
