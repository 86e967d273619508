// The kernels of float_gemm, best first.
#include "bie/kernels/float_gemm.h"

#include "bie/kernels/isa.h"
#include "kernels/cpu/gemm/float_driver.h"
#include "kernels/cpu/gemm/float_panels.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {
namespace {

void prepack(const float* w, std::int64_t n, std::int64_t k, float* packed) {
  cpu::pack_float_panels(w, n, k, packed, serial());
}

template <const cpu::FloatTile<float>& tile>
constexpr FloatGemmKernel kernel(const char* name, Isa isa) {
  return {name,
          isa,
          nullptr,
          cpu::float_panel_bytes<float>,
          prepack,
          [](const GemmShape& shape, const float* x, const float* packed, const float* bias, float* y,
             const Parallel& parallel) { return cpu::run_float_gemm(tile, shape, x, packed, bias, y, parallel); }};
}

}  // namespace

Table<FloatGemmKernel> float_gemm_table() {
  static const FloatGemmKernel best_first[] = {
#if defined(BIE_X86)
    kernel<cpu::avx512bw::f32_tile>("float_gemm_avx512bw", Isa::avx512bw),
    kernel<cpu::avx2::f32_tile>("float_gemm_avx2", Isa::avx2),
#endif
    kernel<cpu::portable::f32_tile>("float_gemm_portable", Isa::portable),
    reference::float_gemm,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
