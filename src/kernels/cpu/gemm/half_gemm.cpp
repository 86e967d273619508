// The kernels of half_gemm, best first, and their driver.
#include "bie/kernels/half_gemm.h"

#include <algorithm>
#include <cstring>

#include "bie/kernels/isa.h"
#include "kernels/cpu/gemm/half_gemm.h"
#include "kernels/cpu/panels.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {
namespace {

constexpr std::int64_t lanes = cpu::HalfGemmTile::lanes;

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

template <const cpu::HalfGemmTile& tile>
Status run(const GemmShape& s, const float* x, const void* packed, const float* bias, float* y,
           const Parallel& parallel) {
  if (s.m < 0 || s.n < 0 || s.k < 0) return Status::bad_shape;
  if (s.m == 0 || s.n == 0) return Status::ok;
  constexpr std::int64_t work_a_task = 1 << 17;
  const std::int64_t most = std::min<std::int64_t>(tile.most, s.m), blocks = (s.m + most - 1) / most;
  const std::int64_t at_once = tile.panels_of(static_cast<int>(most)), panels = panels_of(s.n);
  const std::int64_t steps = (panels + at_once - 1) / at_once;
  const std::int64_t work = most * lanes * at_once * std::max<std::int64_t>(1, s.k);
  // Panels are multiplied with all rows before the next ones.
  parallel_for(parallel, steps * blocks, std::max<std::int64_t>(1, work_a_task / parallel.fineness / work),
               [&](std::int64_t begin, std::int64_t end) {
                 float sums[cpu::HalfGemmTile::most_rows * cpu::HalfGemmTile::most_panels * lanes];
                 for (std::int64_t item = begin; item < end; ++item) {
                   const std::int64_t p = item / blocks * at_once, row = item % blocks * most;
                   const int rows = static_cast<int>(std::min(most, s.m - row)),
                             here = static_cast<int>(std::min(at_once, panels - p));
                   tile.run(x + row * s.k, s.k, rows, static_cast<const std::uint16_t*>(packed) + p * s.k * lanes, here,
                            s.k, sums);
                   const std::int64_t first = p * lanes, count = std::min(here * lanes, s.n - first);
                   for (int r = 0; r < rows; ++r)
                     for (std::int64_t j = 0; j < count; ++j) {
                       const float sum = sums[r * here * lanes + j];
                       y[(row + r) * s.n + first + j] = bias == nullptr ? sum : sum + bias[first + j];
                     }
                 }
               });
  return Status::ok;
}

template <const cpu::HalfGemmTile& tile>
constexpr HalfGemmKernel kernel(const char* name, Isa isa) {
  return {name, isa, nullptr, packed_bytes, prepack, run<tile>};
}

}  // namespace

Table<HalfGemmKernel> f16_gemm_table() {
  static const HalfGemmKernel best_first[] = {
#if defined(BIE_X86)
    kernel<cpu::avx512bw::f16_gemm_tile>("f16_gemm_avx512bw", Isa::avx512bw),
    kernel<cpu::avx2::f16_gemm_tile>("f16_gemm_avx2", Isa::avx2),
#endif
    kernel<cpu::portable::f16_gemm_tile>("f16_gemm_portable", Isa::portable),
    reference::f16_gemm,
  };
  return table_of(best_first);
}

Table<HalfGemmKernel> bf16_gemm_table() {
  static const HalfGemmKernel best_first[] = {
#if defined(BIE_X86)
    kernel<cpu::avx512bw::bf16_gemm_tile>("bf16_gemm_avx512bw", Isa::avx512bw),
    kernel<cpu::avx2::bf16_gemm_tile>("bf16_gemm_avx2", Isa::avx2),
#endif
    kernel<cpu::portable::bf16_gemm_tile>("bf16_gemm_portable", Isa::portable),
    reference::bf16_gemm,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
