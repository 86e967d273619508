// The tiles there are, by name: what tables and instances share without including the kernels.
#pragma once

namespace bie::kernels::cuda {

/// A block's tile, each warp's part of it, steps of 32 bytes of an activation row in one stage, stages in the ring.
template <int rows_, int columns_, int warp_rows_, int warp_columns_, int steps_, int stages_>
struct Tile {
  static constexpr int rows = rows_, columns = columns_, warp_rows = warp_rows_, warp_columns = warp_columns_;
  static constexpr int steps = steps_, stages = stages_;
  static constexpr int row_warps = rows / warp_rows, column_warps = columns / warp_columns;
  static constexpr int threads = 32 * row_warps * column_warps;
};

using LargeTile = Tile<128, 256, 64, 64, 2, 4>;
using MediumTile = Tile<128, 128, 64, 32, 2, 4>;
using TallTile = Tile<128, 64, 64, 32, 2, 4>;
using SmallTile = Tile<64, 64, 32, 32, 2, 4>;
using ThinTile = Tile<16, 128, 16, 32, 4, 4>;  ///< few rows

using HaloTile = Tile<128, 64, 32, 64, 2, 4>;  ///< of a convolution that quantises as it goes
using HaloWideTile = Tile<128, 128, 32, 64, 2, 4>;

/// A tile of two warpgroups whose panels stay in shared memory.
template <int rows_, int columns_>
struct PipelineTile {
  static constexpr int rows = rows_, columns = columns_;
};
using PipelineTall = PipelineTile<256, 64>;
using PipelineWide = PipelineTile<128, 128>;

/// A block's tile on wgmma: 64 rows of the left operand a consumer warpgroup. The left one is the weight or the
/// activation.
template <bool weight_left_, int left_, int right_>
struct WgmmaTile {
  static constexpr bool weight_left = weight_left_;
  static constexpr int left = left_, right = right_;
  static constexpr int consumers = left / 64, threads = 128 * (consumers + 1);
};

using WgmmaTall = WgmmaTile<false, 128, 64>;
using WgmmaLarge = WgmmaTile<false, 128, 256>;
using WgmmaMedium = WgmmaTile<false, 128, 128>;
using WgmmaWeightLarge = WgmmaTile<true, 128, 256>;
using WgmmaWeightMedium = WgmmaTile<true, 128, 128>;
using WgmmaWeightHalf = WgmmaTile<true, 64, 128>;
using WgmmaWeightSmall = WgmmaTile<true, 64, 64>;
using WgmmaWeightThin = WgmmaTile<true, 64, 16>;

}  // namespace bie::kernels::cuda
