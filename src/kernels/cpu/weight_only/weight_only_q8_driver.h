// Weight-only products of integer activations around a tile: rows become codes once. Plain code.
#pragma once

#include "bie/kernels/weight_only_q8.h"
#include "kernels/cpu/weight_only/weight_only_driver.h"

namespace bie::kernels::cpu {

/// Activations as codes. A block is [pieces][rows][piece] codes, then three arrays [groups][rows] that a tile reads
/// beside them.
struct CodeSide {
  static constexpr bool keeps_panels = true;  // a block has fewer bytes than a panel

  const WeightOnlyQ8Tile& product;
  const WeightOnlyPasses& passes;
  int rows, panels;

  int unit() const { return product.unit; }
  std::int64_t slack() const { return product.unit > 1 ? product.unit * product.piece : 0; }
  void enter() const {
    if (product.enter != nullptr) product.enter();
  }
  void leave() const {
    if (product.leave != nullptr) product.leave();
  }
  /// Bytes of a row's codes; each group is padded by less than one piece.
  std::int64_t code_bytes(const WeightHead& head) const {
    return q8_quad * head.quads + (product.piece - q8_quad) * head.groups;
  }
  std::int64_t row_bytes(const WeightHead& head) const { return code_bytes(head) + 12 * head.groups; }
  static float* lone_row(char*, float* row) { return row; }

  void put(const void* packed, const float* row, int row_count, int r, char* block) const {
    const WeightHead& head = head_of(packed);
    auto* u = reinterpret_cast<std::int8_t*>(block);
    auto* const starts = reinterpret_cast<std::int32_t*>(block + code_bytes(head) * row_count);
    auto* const sums = reinterpret_cast<float*>(starts + head.groups * row_count);
    float* const steps = sums + head.groups * row_count;
    for (std::int64_t g = 0; g < head.groups; ++g) {
      const WeightGroup& group = groups_of(packed)[g];
      const std::int64_t at = g * row_count + r;
      std::int32_t sum = 0;
      const int in_piece = product.piece / q8_quad;
      const std::int32_t quads = (group.quads() + in_piece - 1) / in_piece * in_piece;
      steps[at] = product.codes({row, group.rows, quads, row_count, u + product.piece * r, product.piece}, &sum);
      sums[at] = static_cast<float>(sum);
      starts[at] = sum * -head.zero_of(group);
      row += group.rows;
      u += std::int64_t{q8_quad} * quads * row_count;
    }
  }
  void tile(const char* block, int row_count, const PanelsOfTile& to) const {
    const WeightHead& head = head_of(to.packed);
    const auto* const starts = reinterpret_cast<const std::int32_t*>(block + code_bytes(head) * row_count);
    const auto* const sums = reinterpret_cast<const float*>(starts + head.groups * row_count);
    product.run({reinterpret_cast<const std::int8_t*>(block),
                 starts,
                 sums,
                 sums + head.groups * row_count,
                 groups_of(to.packed),
                 head.groups,
                 to.panel,
                 head.panel_bytes,
                 to.count,
                 row_count,
                 {head.scale, head.offset, head.groups_of_super},
                 head.step == 2,
                 to.y,
                 to.y_stride});
  }
};

/// A kernel for a tile.
template <const WeightOnlyQ8Tile& tile, const WeightOnlyPasses& passes>
constexpr WeightOnlyGemmKernel q8_kernel(const char* name, Isa isa) {
  return {name,
          isa,
          nullptr,
          [](const PackedWeight& w) { return weight_panel_bytes(w, LineOrder::quads); },
          [](const PackedWeight& w, void* packed, const Parallel& parallel) {
            pack_weight_panels(w, LineOrder::quads, packed, parallel);
          },
          [](const WeightRows& w) { return weight_panel_bytes(w, LineOrder::quads); },
          [](const WeightRows& w, void* packed, const Parallel& parallel) {
            pack_weight_panels(w, LineOrder::quads, packed, parallel);
          },
          [](const GemmShape& shape, const FloatRows& x, const void* packed, const FloatResults& y,
             const Parallel& parallel) {
            return run_weight_only(CodeSide{tile, passes, tile.rows, tile.panels}, shape, x, packed, y, parallel);
          }};
}

/// A kernel of two tiles with the same panels: `few` multiplies less than `least(packed)` rows.
template <const WeightOnlyQ8Tile& tile, const WeightOnlyQ8Tile& few, const WeightOnlyPasses& passes,
          std::int64_t (*least)(const void* packed)>
constexpr WeightOnlyGemmKernel q8_kernel_of_two(const char* name, Isa isa) {
  WeightOnlyGemmKernel kernel = q8_kernel<few, passes>(name, isa);
  kernel.run = [](const GemmShape& shape, const FloatRows& x, const void* packed, const FloatResults& y,
                  const Parallel& parallel) {
    const WeightOnlyQ8Tile& chosen = shape.m > 0 && shape.n > 0 && shape.m >= least(packed) ? tile : few;
    return run_weight_only(CodeSide{chosen, passes, chosen.rows, chosen.panels}, shape, x, packed, y, parallel);
  };
  return kernel;
}

}  // namespace bie::kernels::cpu
