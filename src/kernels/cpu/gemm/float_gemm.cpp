// The kernels of float_gemm, best first.
#include "bie/kernels/float_gemm.h"

#include <algorithm>

#include "bie/kernels/isa.h"
#include "kernels/cpu/gemm/float_driver.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {
namespace {

constexpr std::int64_t lanes = cpu::FloatTile<float>::lanes;

std::int64_t panels_of(std::int64_t n) { return (n + lanes - 1) / lanes; }

std::size_t packed_bytes(std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>(panels_of(n) * k * lanes) * sizeof(float);
}

}  // namespace

void cpu::pack_float_panels(const float* w, std::int64_t n, std::int64_t k, float* packed) {
  for (std::int64_t p = 0; p < panels_of(n); ++p)
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t j = 0; j < lanes; ++j)
        packed[(p * k + i) * lanes + j] = p * lanes + j < n ? w[(p * lanes + j) * k + i] : 0.0f;
}

Table<FloatGemmKernel> float_gemm_table() {
  static const FloatGemmKernel best_first[] = {
#if defined(BIE_X86)
    {"float_gemm_avx512bw", Isa::avx512bw, nullptr, packed_bytes, cpu::pack_float_panels,
     cpu::run_float_gemm<float, cpu::avx512bw::f32_tile>},
    {"float_gemm_avx2", Isa::avx2, nullptr, packed_bytes, cpu::pack_float_panels,
     cpu::run_float_gemm<float, cpu::avx2::f32_tile>},
#endif
    {"float_gemm_portable", Isa::portable, nullptr, packed_bytes, cpu::pack_float_panels,
     cpu::run_float_gemm<float, cpu::portable::f32_tile>},
    reference::float_gemm,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
