// The kernels of mean, best first.
#include <numeric>
#include <vector>

#include "bie/kernels/quantize.h"
#include "kernels/cpu/passes.h"

namespace bie::kernels {
namespace {

using BlockSums = void (*)(const void* x, Dtype dtype, std::int64_t first, std::int64_t count, double* sums);

float mean_of(BlockSums block_sums, const void* x, Dtype dtype, std::int64_t count, const Parallel& parallel) {
  constexpr std::int64_t block = cpu::mean_block, grain = 8;
  if (count <= 0) return 0.0f;
  std::vector<double> sums(static_cast<std::size_t>((count + block - 1) / block));
  parallel_for(parallel, static_cast<std::int64_t>(sums.size()), grain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t last = count < end * block ? count : end * block;
    block_sums(x, dtype, begin * block, last - begin * block, sums.data() + begin);
  });
  return static_cast<float>(std::accumulate(sums.begin(), sums.end(), 0.0) / static_cast<double>(count));
}

template <const cpu::MeanPasses& passes>
constexpr MeanKernel kernel(const char* name, Isa isa) {
  return {name, isa, nullptr,
          [](const void* x, Dtype dtype, std::int64_t count, const Parallel& parallel) {
            return mean_of(passes.magnitudes, x, dtype, count, parallel);
          },
          [](const void* x, Dtype dtype, std::int64_t count, const Parallel& parallel) {
            return mean_of(passes.elements, x, dtype, count, parallel);
          }};
}

}  // namespace

Table<MeanKernel> mean_table() {
  static const MeanKernel best_first[] = {
#if defined(BIE_X86)
    kernel<cpu::avx2::mean_passes>("mean_avx2", Isa::avx2),
#endif
    kernel<cpu::plain::mean_passes>("mean_reference", Isa::reference),
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
