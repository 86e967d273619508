// The kernels of sigmoid, best first, and their driver.
#include "bie/kernels/sigmoid.h"

#include "kernels/cpu/passes.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {
namespace {

constexpr std::int64_t elements_a_task = 1 << 14;

template <const cpu::SigmoidPasses& passes, bool gates>
Status run(std::int64_t count, const float* x, float* y, const Parallel& parallel) {
  if (count < 0) return Status::bad_shape;
  parallel_for(parallel, count, elements_a_task, [&](std::int64_t begin, std::int64_t end) {
    (gates ? passes.silu : passes.sigmoid)(x + begin, end - begin, y + begin);
  });
  return Status::ok;
}

template <const cpu::SigmoidPasses& passes>
constexpr SigmoidKernel kernel_of(const char* name, Isa isa) {
  return {name, isa, nullptr, run<passes, false>, run<passes, true>};
}

}  // namespace

Table<SigmoidKernel> sigmoid_table() {
  static const SigmoidKernel best_first[] = {
#if defined(BIE_X86)
    kernel_of<cpu::avx512bw::sigmoid_passes>("sigmoid_avx512bw", Isa::avx512bw),
    kernel_of<cpu::avx2::sigmoid_passes>("sigmoid_avx2", Isa::avx2),
#endif
    kernel_of<cpu::plain::sigmoid_passes>("sigmoid_portable", Isa::portable),
    reference::sigmoid,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
