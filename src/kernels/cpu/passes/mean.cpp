#include <cmath>

#include "kernels/cpu/passes.h"
#include "kernels/cpu/passes/chunks.h"

namespace bie::kernels::cpu {
namespace {

constexpr int lanes = 8;

/// Element i is added to lane i % 8, and the lanes are added at the end.
template <bool magnitudes>
double sum_of(const void* x, Dtype dtype, std::int64_t first, std::int64_t count) {
  const auto value = [](float element) { return static_cast<double>(magnitudes ? fabsf(element) : element); };
  double sum[lanes] = {};
  for_chunks(first, count, [&](std::int64_t at, std::int64_t n) {
    Floats buffer;
    const float* const wide = widened(x, dtype, at, n, buffer);
    std::int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
      for (int lane = 0; lane < lanes; ++lane) sum[lane] += value(wide[i + lane]);
    for (; i < n; ++i) sum[i % lanes] += value(wide[i]);
  });
  double all = 0;
  for (const double lane : sum) all += lane;
  return all;
}

template <bool magnitudes>
void block_sums(const void* x, Dtype dtype, std::int64_t first, std::int64_t count, double* sums) {
  for (std::int64_t done = 0; done < count; done += mean_block)
    *sums++ = sum_of<magnitudes>(x, dtype, first + done, count - done < mean_block ? count - done : mean_block);
}

}  // namespace

const MeanPasses BIE_PASS_SET::mean_passes = {block_sums<true>, block_sums<false>};

}  // namespace bie::kernels::cpu
