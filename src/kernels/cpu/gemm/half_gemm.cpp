// The kernels of half_gemm, best first.
#include "bie/kernels/half_gemm.h"

#include "bie/kernels/isa.h"
#include "kernels/cpu/gemm/float_driver.h"
#include "kernels/cpu/gemm/float_panels.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {
namespace {

void prepack(const void* w, std::int64_t n, std::int64_t k, void* packed, const Parallel& parallel) {
  cpu::pack_float_panels(w, n, k, static_cast<std::uint16_t*>(packed), parallel);
}

template <const cpu::FloatTile<std::uint16_t>& tile>
constexpr HalfGemmKernel kernel(const char* name, Isa isa) {
  return {name,
          isa,
          nullptr,
          cpu::float_panel_bytes<std::uint16_t>,
          prepack,
          [](const GemmShape& shape, const float* x, const void* packed, const float* bias, float* y,
             const Parallel& parallel) {
            return cpu::run_float_gemm(tile, shape, x, static_cast<const std::uint16_t*>(packed), bias, y, parallel);
          }};
}

}  // namespace

Table<HalfGemmKernel> f16_gemm_table() {
  static const HalfGemmKernel best_first[] = {
#if defined(BIE_X86)
    kernel<cpu::avx512bw::f16_tile>("f16_gemm_avx512bw", Isa::avx512bw),
    kernel<cpu::avx2::f16_tile>("f16_gemm_avx2", Isa::avx2),
#endif
    kernel<cpu::portable::f16_tile>("f16_gemm_portable", Isa::portable),
    reference::f16_gemm,
  };
  return table_of(best_first);
}

Table<HalfGemmKernel> bf16_gemm_table() {
  static const HalfGemmKernel best_first[] = {
#if defined(BIE_X86)
    kernel<cpu::avx512bw::bf16_tile>("bf16_gemm_avx512bw", Isa::avx512bw),
    kernel<cpu::avx2::bf16_tile>("bf16_gemm_avx2", Isa::avx2),
#endif
    kernel<cpu::portable::bf16_tile>("bf16_gemm_portable", Isa::portable),
    reference::bf16_gemm,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
