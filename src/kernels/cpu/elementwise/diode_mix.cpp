// The kernels of diode_mix, best first.
#include "bie/kernels/diode_mix.h"

#include <vector>

#include "kernels/arithmetic/diode_mix.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/passes.h"

namespace bie::kernels {
namespace {

bool is_moment(Dtype dtype) { return dtype == Dtype::f32 || dtype == Dtype::bf16; }
/// Dtypes that a gradient of an integer weight may have.
bool is_gradient(Dtype dtype) { return dtype == Dtype::f32 || dtype == Dtype::s8; }

template <const cpu::DiodeMixPasses& passes>
Status floats(const DiodeMixTensor& t, Dtype param, Dtype moments, const AdamNumbers& o, const Parallel& parallel) {
  if (!is_float(param) || !is_moment(moments)) return Status::bad_dtype;
  return cpu::for_elements(t.count, parallel, [&](std::int64_t begin, std::int64_t end) {
    passes.floats(t, begin, end - begin, param, moments, o);
  });
}

template <const cpu::DiodeMixPasses& passes>
Status codes(const DiodeMixTensor& t, float scale, float next, Dtype grad, Dtype moments, const AdamNumbers& o,
             const Parallel& parallel) {
  if (!is_gradient(grad) || !is_moment(moments)) return Status::bad_dtype;
  return cpu::for_elements(t.count, parallel, [&](std::int64_t begin, std::int64_t end) {
    passes.codes(t, begin, end - begin, scale, next, grad, moments, o);
  });
}

template <const cpu::DiodeMixPasses& passes>
Status signs(const DiodeMixTensor& t, Dtype grad, Dtype moments, const SignNumbers& o, const Parallel& parallel) {
  if (!is_gradient(grad) || !is_moment(moments)) return Status::bad_dtype;
  return cpu::for_elements(t.count, parallel, [&](std::int64_t begin, std::int64_t end) {
    passes.signs(t, begin, end - begin, grad, moments, o);
  });
}

template <const cpu::DiodeMixPasses& passes>
Status renewed_scale(const std::int8_t* q, std::int64_t count, float scale, double mean_to_step, float* next,
                     const Parallel& parallel) {
  if (count < 0) return Status::bad_shape;
  const std::int64_t blocks = (count + cpu::element_grain - 1) / cpu::element_grain;
  std::vector<std::int64_t> sums(static_cast<std::size_t>(blocks));
  parallel_for(parallel, blocks, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t b = first; b < last; ++b) {
      const std::int64_t begin = b * cpu::element_grain, left = count - begin;
      sums[static_cast<std::size_t>(b)] =
          passes.magnitudes(q + begin, left < cpu::element_grain ? left : cpu::element_grain);
    }
  });
  std::int64_t sum = 0;
  for (const std::int64_t part : sums) sum += part;
  *next = renewed(sum, count, scale, mean_to_step);
  return Status::ok;
}

template <const cpu::DiodeMixPasses& passes>
Status first_moment(const std::int8_t* w, std::int64_t count, std::uint64_t random, void* moment, Dtype dtype,
                    const Parallel& parallel) {
  if (!is_moment(dtype)) return Status::bad_dtype;
  return cpu::for_elements(count, parallel, [&](std::int64_t begin, std::int64_t end) {
    passes.first_moment(w, begin, end - begin, random, moment, dtype);
  });
}

template <const cpu::DiodeMixPasses& passes>
constexpr DiodeMixKernel kernel(const char* name, Isa isa) {
  return {
      name, isa, nullptr, floats<passes>, codes<passes>, signs<passes>, renewed_scale<passes>, first_moment<passes>};
}

}  // namespace

Table<DiodeMixKernel> diode_mix_table() {
  static const DiodeMixKernel best_first[] = {
#if defined(BIE_X86)
    kernel<cpu::avx2::diode_mix_passes>("diode_mix_avx2", Isa::avx2),
#endif
    kernel<cpu::plain::diode_mix_passes>("diode_mix_reference", Isa::reference),
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
