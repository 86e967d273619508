// The kernels of float_gemm, best first, and their driver.
#include "bie/kernels/float_gemm.h"

#include <algorithm>

#include "bie/kernels/isa.h"
#include "kernels/cpu/passes.h"

namespace bie::kernels {
namespace {

constexpr std::int64_t lanes = 16, most_rows = 12, work_a_task = 1 << 17;

std::int64_t panels_of(std::int64_t n) { return (n + lanes - 1) / lanes; }

std::size_t packed_bytes(std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>(panels_of(n) * k * lanes) * sizeof(float);
}

void prepack(const float* w, std::int64_t n, std::int64_t k, float* packed) {
  for (std::int64_t p = 0; p < panels_of(n); ++p)
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t j = 0; j < lanes; ++j)
        packed[(p * k + i) * lanes + j] = p * lanes + j < n ? w[(p * lanes + j) * k + i] : 0.0f;
}

template <const cpu::FloatGemmPasses& passes>
Status gemm(const GemmShape& s, const float* x, const float* packed, const float* bias, float* y,
            const Parallel& parallel) {
  if (s.m < 0 || s.n < 0 || s.k < 0) return Status::bad_shape;
  const std::int64_t tile_rows = passes.most;
  const std::int64_t panels = panels_of(s.n), blocks = (s.m + tile_rows - 1) / tile_rows;
  const std::int64_t work = tile_rows * lanes * std::max<std::int64_t>(1, s.k);
  // A panel is multiplied with all rows before the next one.
  parallel_for(parallel, panels * blocks, std::max<std::int64_t>(1, work_a_task / parallel.fineness / work),
               [&](std::int64_t begin, std::int64_t end) {
                 float tile[most_rows][lanes];
                 for (std::int64_t item = begin; item < end; ++item) {
                   const std::int64_t p = item / blocks, row = item % blocks * tile_rows;
                   const int rows = static_cast<int>(std::min(tile_rows, s.m - row));
                   passes.tile(x + row * s.k, s.k, rows, packed + p * s.k * lanes, s.k, tile);
                   const std::int64_t count = std::min(lanes, s.n - p * lanes);
                   for (int r = 0; r < rows; ++r)
                     for (std::int64_t j = 0; j < count; ++j)
                       y[(row + r) * s.n + p * lanes + j] =
                           bias == nullptr ? tile[r][j] : tile[r][j] + bias[p * lanes + j];
                 }
               });
  return Status::ok;
}

}  // namespace

Table<FloatGemmKernel> float_gemm_table() {
  static const FloatGemmKernel best_first[] = {
#if defined(BIE_X86)
    {"float_gemm_avx512bw", Isa::avx512bw, nullptr, packed_bytes, prepack, gemm<cpu::avx512bw::float_gemm_passes>},
    {"float_gemm_avx2", Isa::avx2, nullptr, packed_bytes, prepack, gemm<cpu::avx2::float_gemm_passes>},
#endif
    {"float_gemm_reference", Isa::reference, nullptr, packed_bytes, prepack, gemm<cpu::plain::float_gemm_passes>},
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
