// Panels of a weight of packed codes, as the tile reads them. A tile is 16 outputs, a chunk 32 slots of k. Of each
// chunk, lane l of a warp holds eight slots, t = l % 4, of the outputs l / 4 and l / 4 + 8: the elements that the
// tensor cores expect from it as their left operand where slots are the depth in their own order. For float
// activations, two products of depth 16, those are 2 t and 2 t + 1 and the same 8, 16 and 24 further on; for
// activations of 8 bits, one product of depth 32, 4 t ... 4 t + 3 and 16 + 4 t ... 16 + 4 t + 3. A step is as many
// chunks as fill 16 bytes per lane.
//
//     codes    [tiles][steps][32 lanes][16 bytes]
//     records  [tiles][runs][8] of 8 bytes, or of 16 with scales of float32: s of outputs l / 4 and l / 4 + 8,
//              then their zeros, which are floats like s (Offset::value) or uint16
//     middles  [runs] float32, 2^(bits - 1) of the group, where zeros are floats
//     inputs   [32 * chunks] int32, the input feature of a slot or -1, where slots are not ordered
//     groups   [runs] int32, the group of a run, there too
#pragma once

#include "bie/kernels/cuda/weight_only.h"

namespace bie::kernels::cuda {

constexpr int tile_outputs = 16, step_bytes = 512, lane_bytes = 16;

/// Chunks of a step.
constexpr int step_chunks(int width) { return 8 / width; }

constexpr std::int64_t over(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

struct PanelLayout {
  std::int64_t tiles, steps, runs, record_bytes;
  std::int64_t records_at, middles_at, inputs_at, groups_at, bytes;

  explicit constexpr PanelLayout(const WeightOnlyPlan& p)
      : tiles(over(p.n, tile_outputs)),
        steps(over(p.chunks, step_chunks(p.width))),
        runs(weight_only_runs(p)),
        record_bytes(row_bytes(p.scale, 4)),
        records_at(tiles * steps * step_bytes),
        middles_at(records_at + over(runs * tiles * 8 * record_bytes, 16) * 16),
        inputs_at(middles_at + (p.offset == Offset::value ? over(runs * 4, 16) * 16 : 0)),
        groups_at(inputs_at + (p.ordered ? 0 : p.chunks * chunk_slots * 4)),
        bytes(groups_at + (p.ordered ? 0 : runs * 4)) {}
};

/// Where the code of slot i = 0 ... 7 of a lane stands, of its lower (half = 0) or upper output, in chunk c of a step.
struct CodePlace {
  int word, bit;
};
constexpr CodePlace code_place(int width, int c, int half, int i) {
  const int pair = i / 2, odd = i % 2;
  switch (width) {
    case 8: return {2 * half + i / 4, 8 * (i % 4)};
    case 4: return {2 * c + half, 4 * pair + 16 * odd};
    case 2: return {c, 8 * half + 2 * pair + 16 * odd};
    default: return {c / 2, 8 * (c % 2) + 4 * half + pair + 16 * odd};
  }
}

/// Place for activations of 8 bits: a register of the tensor cores' left operand is four codes, a mask of a word.
constexpr CodePlace byte_place(int width, int c, int half, int i) {
  const int registers = 8 / width, number = 4 * c + i / 4 * 2 + half;
  return {number / registers, 8 * (i % 4) + width * (number % registers)};
}
/// Slot i = 0 ... 7 of lanes t, of a chunk's 32.
constexpr int lane_slot(bool int8, int t, int i) {
  return int8 ? i / 4 * 16 + 4 * t + i % 4 : i / 2 * 8 + 2 * t + i % 2;
}

}  // namespace bie::kernels::cuda
