// The kernels of weight_only_gemm, best first.
#include "bie/kernels/weight_only_gemm.h"

#include "kernels/cpu/weight_only/weight_only_driver.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {
namespace cpu {
namespace {

/// Float activations. A block is [k][rows] of them and [groups][rows] sums.
struct FloatSide {
  static constexpr bool keeps_panels = false;

  const WeightOnlyTile& product;
  const WeightOnlyPasses& passes;
  int rows, panels;

  static int unit() { return 1; }
  static std::int64_t slack() { return 0; }
  static void enter() {}
  static void leave() {}
  static std::int64_t groups_of_sums(const WeightHead& head) { return head.offset == Offset::none ? 0 : head.groups; }
  static std::int64_t row_bytes(const WeightHead& head) { return 4 * (head.k + groups_of_sums(head)); }
  static float* lone_row(char* block, float*) { return reinterpret_cast<float*>(block); }

  void put(const void* packed, const float* row, int row_count, int r, char* block) const {
    const WeightHead& head = head_of(packed);
    auto* const x = reinterpret_cast<float*>(block);
    if (row != x)
      for (std::int64_t t = 0; t < head.k; ++t) x[t * row_count + r] = row[t];
    float* const sums = x + row_count * head.k;
    for (std::int64_t g = 0; g < groups_of_sums(head); ++g) {
      const std::int32_t count = groups_of(packed)[g].rows;
      sums[g * row_count + r] = passes.sum(row, count);
      row += count;
    }
  }
  void tile(const char* block, int row_count, const PanelsOfTile& to) const {
    const WeightHead& head = head_of(to.packed);
    const auto* const x = reinterpret_cast<const float*>(block);
    product.run({x, head.offset == Offset::none ? nullptr : x + row_count * head.k, groups_of(to.packed), head.groups,
                 to.panel, head.panel_bytes, to.count, row_count, head.scale, head.offset, to.y, to.y_stride});
  }
};

template <const WeightOnlyTile& tile, const WeightOnlyPasses& passes>
constexpr WeightOnlyGemmKernel kernel(const char* name, Isa isa) {
  return {name,
          isa,
          nullptr,
          [](const PackedWeight& w) { return weight_panel_bytes(w, LineOrder::pairs); },
          [](const PackedWeight& w, void* packed, const Parallel& parallel) {
            pack_weight_panels(w, LineOrder::pairs, packed, parallel);
          },
          [](const WeightRows& w) { return weight_panel_bytes(w, LineOrder::pairs); },
          [](const WeightRows& w, void* packed, const Parallel& parallel) {
            pack_weight_panels(w, LineOrder::pairs, packed, parallel);
          },
          [](const GemmShape& shape, const FloatRows& x, const void* packed, const FloatResults& y,
             const Parallel& parallel) {
            return run_weight_only(FloatSide{tile, passes, tile.rows, tile.panels}, shape, x, packed, y, parallel);
          }};
}

}  // namespace
}  // namespace cpu

Table<WeightOnlyGemmKernel> weight_only_gemm_table() {
  static const WeightOnlyGemmKernel best_first[] = {
#if defined(BIE_X86)
    cpu::kernel<cpu::avx512bw::weight_only_tile, cpu::avx2::weight_only_passes>("weight_only_gemm_avx512bw",
                                                                                Isa::avx512bw),
    cpu::kernel<cpu::avx2::weight_only_tile, cpu::avx2::weight_only_passes>("weight_only_gemm_avx2", Isa::avx2),
#endif
#if defined(BIE_ARM)
    cpu::kernel<cpu::neon::weight_only_tile, cpu::plain::weight_only_passes>("weight_only_gemm_neon", Isa::neon),
#endif
    cpu::kernel<cpu::plain::weight_only_loops, cpu::plain::weight_only_passes>("weight_only_gemm_portable",
                                                                               Isa::portable),
    reference::weight_only_gemm,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
