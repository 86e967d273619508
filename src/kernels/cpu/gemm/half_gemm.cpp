// The kernels of half_gemm, best first.
#include "bie/kernels/half_gemm.h"

#include <algorithm>
#include <cstring>

#include "bie/kernels/isa.h"
#include "kernels/cpu/gemm/float_driver.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {
namespace {

constexpr std::int64_t lanes = cpu::FloatTile<std::uint16_t>::lanes;

std::int64_t panels_of(std::int64_t n) { return (n + lanes - 1) / lanes; }

std::size_t packed_bytes(std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>(panels_of(n) * k * lanes) * sizeof(std::uint16_t);
}

/// Panels [k][16], zeros behind the last output.
void prepack(const void* w, std::int64_t n, std::int64_t k, void* packed, const Parallel& parallel) {
  constexpr std::int64_t together = 64;  // elements of k whose 16 rows are read at once
  parallel_for(parallel, panels_of(n), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      auto* const panel = static_cast<std::uint16_t*>(packed) + p * k * lanes;
      const auto* const rows = static_cast<const char*>(w) + p * lanes * k * 2;
      const std::int64_t count = std::min(lanes, n - p * lanes);
      if (count < lanes) std::memset(panel, 0, static_cast<std::size_t>(k * lanes) * 2);
      for (std::int64_t first = 0; first < k; first += together) {
        const std::int64_t here = std::min(together, k - first);
        for (std::int64_t j = 0; j < count; ++j) {
          std::uint16_t part[together];
          std::memcpy(part, rows + (j * k + first) * 2, static_cast<std::size_t>(here) * 2);
          for (std::int64_t i = 0; i < here; ++i) panel[(first + i) * lanes + j] = part[i];
        }
      }
    }
  });
}

template <const cpu::FloatTile<std::uint16_t>& tile>
constexpr HalfGemmKernel kernel(const char* name, Isa isa) {
  return {name,
          isa,
          nullptr,
          packed_bytes,
          prepack,
          [](const GemmShape& shape, const float* x, const void* packed, const float* bias, float* y,
             const Parallel& parallel) {
            return cpu::run_float_gemm<std::uint16_t, tile>(shape, x, static_cast<const std::uint16_t*>(packed), bias,
                                                            y, parallel);
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
