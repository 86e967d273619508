// How a warpgroup writes 16-bit results: through shared memory, by the TMA.
#pragma once

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/tile_args.cuh"

namespace bie::kernels::cuda::wgmma {

constexpr int box_row_bytes = 128, box_rows = 64;  ///< of a box of results

/// The tile of 64 left rows and `right` right ones in boxes, each in one of two places at `boxes` in turn: *turn says
/// which is next, 0 before the first tile.
/// pair_at(j, half) is the sums of left row 16 warp + 8 half + lane / 4 and right rows 8 j + lane % 4 * 2 and the next
/// one.
template <bool weight_left, int right, class PairAt>
__device__ void write_boxes(const CUtensorMap& out, unsigned boxes, int* turn, int barrier, Dtype dtype,
                            const Writer& writer, int first_left, int first_right, const PairAt& pair_at) {
  constexpr int across = right < box_rows ? right : box_rows;  // right rows of a box
  constexpr int box_bytes = (weight_left ? across : box_rows) * box_row_bytes;
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, matrix = lane / 8;
#pragma unroll
  for (int b = 0; b < right / across; ++b) {
    const unsigned box = boxes + *turn * box_bytes;
    *turn ^= 1;
    if (thread == 0) hopper::wait_stores_read<1>();
    hopper::sync_warpgroup(barrier);
#pragma unroll
    for (int i = 0; i < across / 8; i += 2) {
      unsigned r[4];
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int2 pair = pair_at(b * (across / 8) + i + part / 2, part % 2);
        r[part] = pack_pair(dtype, writer.scaled(pair.x), writer.scaled(pair.y));
      }
      const int row = weight_left ? 8 * (i + matrix / 2) + lane % 8 : 16 * warp + matrix % 2 * 8 + lane % 8;
      const int chunk = weight_left ? 2 * warp + matrix % 2 : i + matrix / 2;
      hopper::store_matrices<weight_left>(box + row * box_row_bytes + 16 * (chunk ^ row % 8), r);
    }
    hopper::before_stores();
    hopper::sync_warpgroup(barrier);
    if (thread != 0) continue;
    const int at = first_right + b * across;
    hopper::store_box(out, weight_left ? first_left : at, weight_left ? at : first_left, box);
    hopper::commit_stores();
  }
}

}  // namespace bie::kernels::cuda::wgmma
