// How the tiles of few rows (weight_only_tile.cuh) are shared out among the multiprocessors, and their launch.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/cuda/weight_only_tile.cuh"

namespace bie::kernels::cuda::weight_only {

/// Blocks of a launch on the multiprocessors.
struct Spread {
  int split_bits;      ///< 2^split_bits blocks, a cluster, share the slots
  int each;            ///< blocks that the busiest multiprocessor gets, where all run at once; else 0
  double cost;         ///< what that one computes, in slots of an output
  std::size_t shared;  ///< bytes of a block's shared memory
};

template <class P, class S>
std::size_t shared_bytes(const typename P::Args& p, [[maybe_unused]] int splits) {
  using R = Ring<P, S>;
  int rows = R::rows_bytes;
  if constexpr (S::whole) rows = P::whole_bytes(p, p.steps / splits + 1);
  return static_cast<std::size_t>(std::max(S::sum_bytes, R::code_bytes + rows));
}

/// The fastest spread of a tile by a model of an H100: what the busiest multiprocessor computes takes longer the fewer
/// copies of codes are under way there, and a cluster takes as long as 25 thousand slots of an output to meet.
template <class P, class S>
Spread spread_of(const typename P::Args& p, const Gpu& gpu) {
  constexpr std::size_t of_multiprocessor = 228 * 1024, of_block = 1024;  // of Hopper's, and what the system takes
  constexpr int most_split_bits = 3, least_slots = 256;                   // per warp, where slots are split
  constexpr double cluster_cost = 25e3, alone = 0.7;
  const bool hopper = runs_hopper_code(gpu);
  const double blocks = static_cast<double>(over(p.n, S::outputs)), multiprocessors = gpu.multiprocessors;
  Spread best{};
  for (int bits = 0; bits <= (hopper ? most_split_bits : 0); ++bits) {
    const int splits = 1 << bits, parts = S::behind * splits;
    const std::size_t shared = shared_bytes<P, S>(p, splits);
    if (shared > most_shared && bits < most_split_bits) continue;
    if (best.shared != 0 && p.chunks * chunk_slots < least_slots * parts) break;
    const int fit = hopper ? std::min(S::blocks, static_cast<int>(of_multiprocessor / (shared + of_block))) : S::blocks;
    // Clusters of four and more leave some places empty: 62 of 66 run at once on an H100.
    const double all = blocks * splits, places = multiprocessors * fit * (splits > 2 ? 0.9 : 1);
    const int each = all <= places ? static_cast<int>(std::ceil(all / multiprocessors)) : 0;
    if (best.shared != 0 && each == 0) break;
    const double of_one = each > 0 ? each : all / multiprocessors + fit;          // in waves, the last one not full
    const double of_busiest = static_cast<double>(over(p.steps, parts) * parts);  // warp, if all had as many steps
    const double slots = (p.steps + of_busiest) / 2 * step_chunks(P::width) * chunk_slots;
    const double under_way = (each > 0 ? each : fit) * S::tiles;
    const double cost =
        of_one * S::outputs / splits * slots * (1 + alone / (under_way * under_way)) + (splits > 1 ? cluster_cost : 0);
    if (best.shared != 0 && cost >= best.cost) continue;
    best = {bits, each, cost, shared};
    // No more than its share for each: blocks of the next launch, which start early, would take places of this one's.
    if (hopper && each > 0 && each < fit)
      best.shared = std::clamp<std::size_t>(of_multiprocessor / (each + 1), shared, most_shared);
  }
  return best;
}

template <class P, class S>
Status launch_tile(typename P::Args p, const Spread& spread, const Gpu& gpu, const Queue& queue) {
  p.split_bits = spread.split_bits;
  p.splits = 1 << spread.split_bits;
  const std::int64_t blocks = over(p.n, S::outputs) * p.splits;
  const auto kernel = tile_kernel<P, S>;
  if (runs_hopper_code(gpu)) return launch_clusters(kernel, blocks, p.splits, threads, spread.shared, queue, p);
  return launch(kernel, blocks, threads, spread.shared, queue, p);
}
template <class P, class S>
Status launch_tile(const typename P::Args& p, const Gpu& gpu, const Queue& queue) {
  return launch_tile<P, S>(p, spread_of<P, S>(p, gpu), gpu, queue);
}

}  // namespace bie::kernels::cuda::weight_only
