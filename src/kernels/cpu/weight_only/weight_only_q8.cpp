// The kernels of weight_only_q8, best first.
#include "bie/kernels/weight_only_q8.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/weight_only/weight_only_q8_driver.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {

#if defined(BIE_X86)
namespace {

/// Rows from which on AMX is ahead of VNNI (4096 x 4096). It opens all codes to memory, which takes as long for one row
/// as for sixteen; memory bounds codes of 8 bits either way, and short groups fill a part of a tile.
std::int64_t least_rows_of_amx(const void* packed) {
  const cpu::WeightHead& head = cpu::head_of(packed);
  const bool opens = head.groups > 0 && cpu::groups_of(packed)->width < 8, fills = head.k >= 48 * head.groups;
  return opens && fills ? 7 : 12;
}

}  // namespace
#endif

Status check_q8_weight(const PackedWeight& w) {
  const Status status = check_weight(w);
  if (status != Status::ok) return status;
  std::vector<std::int64_t> rows(static_cast<std::size_t>(w.groups), 0);
  for (std::int64_t i = 0; i < w.k; ++i)
    if (++rows[static_cast<std::size_t>(w.group_of[i])] > most_q8_rows) return Status::too_deep;
  return Status::ok;
}

Status check_q8_weight(const WeightRows& w) {
  const Status status = check_weight(w);
  return status == Status::ok && std::min(w.group, w.k) > most_q8_rows ? Status::too_deep : status;
}

Table<WeightOnlyGemmKernel> weight_only_q8_table() {
  static const WeightOnlyGemmKernel best_first[] = {
#if defined(BIE_X86)
    cpu::q8_kernel_of_two<cpu::amx::weight_only_q8_tile, cpu::avx512::weight_only_q8_tile,
                          cpu::avx2::weight_only_passes, least_rows_of_amx>("weight_only_q8_amx", Isa::amx),
    cpu::q8_kernel<cpu::avx512::weight_only_q8_tile, cpu::avx2::weight_only_passes>("weight_only_q8_avx512",
                                                                                    Isa::avx512),
    cpu::q8_kernel<cpu::avxvnni::weight_only_q8_tile, cpu::avx2::weight_only_passes>("weight_only_q8_avxvnni",
                                                                                     Isa::avxvnni),
    cpu::q8_kernel<cpu::avx2::weight_only_q8_tile, cpu::avx2::weight_only_passes>("weight_only_q8_avx2", Isa::avx2),
#endif
#if defined(BIE_ARM)
    cpu::q8_kernel<cpu::dotprod::weight_only_q8_tile, cpu::plain::weight_only_passes>("weight_only_q8_dotprod",
                                                                                      Isa::dotprod),
    cpu::q8_kernel<cpu::neon::weight_only_q8_tile, cpu::plain::weight_only_passes>("weight_only_q8_neon", Isa::neon),
#endif
    cpu::q8_kernel<cpu::plain::weight_only_q8_loops, cpu::plain::weight_only_passes>("weight_only_q8_portable",
                                                                                     Isa::portable),
    reference::weight_only_q8,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
