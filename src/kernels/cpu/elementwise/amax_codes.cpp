// The kernels of amax_codes, best first.
#include "bie/kernels/amax_codes.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "bie/kernels/quantize.h"
#include "kernels/arithmetic/codes.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/passes.h"

namespace bie::kernels {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

Status check(Dtype dtype, std::int64_t count) {
  if (count < 0) return Status::bad_shape;
  return is_float(dtype) ? Status::ok : Status::bad_dtype;
}

template <const cpu::AmaxCodesPasses& passes>
Extremes extremes_of(const void* x, Dtype dtype, std::int64_t count, float gain, const Parallel& parallel) {
  const std::int64_t blocks = (count + cpu::element_grain - 1) / cpu::element_grain;
  std::vector<Extremes> parts(static_cast<std::size_t>(blocks));
  parallel_for(parallel, blocks, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t b = first; b < last; ++b) {
      const std::int64_t begin = b * cpu::element_grain, left = count - begin;
      parts[static_cast<std::size_t>(b)] =
          passes.extremes(x, dtype, begin, left < cpu::element_grain ? left : cpu::element_grain, gain);
    }
  });
  Extremes all{infinity, -infinity, true};
  for (const Extremes& part : parts) {
    all.min = part.min < all.min ? part.min : all.min;
    all.max = part.max > all.max ? part.max : all.max;
    all.all_finite = all.all_finite && part.all_finite;
  }
  return all;
}

template <const cpu::AmaxCodesPasses& passes>
Status extremes(const void* x, Dtype dtype, std::int64_t count, Extremes* out, const Parallel& parallel) {
  const Status status = check(dtype, count);
  if (status == Status::ok) *out = extremes_of<passes>(x, dtype, count, 1, parallel);
  return status;
}

template <const cpu::AmaxCodesPasses& passes>
Status amax_quantize(const void* x, Dtype dtype, std::int64_t count, float amax, const AmaxRange& range, void* q,
                     float* scale, const Parallel& parallel) {
  const Status status = check(dtype, count);
  if (status != Status::ok) return status;
  if (!(std::isfinite(amax) && amax >= 0)) return Status::bad_scale;
  const AmaxFactor factor = amax_factor(range.bound, amax);
  *scale = amax_scale(amax, factor);
  return cpu::for_elements(count, parallel, [&](std::int64_t begin, std::int64_t end) {
    passes.amax_quantize(x, dtype, begin, end - begin, factor, range.lo, range.bound, q);
  });
}

template <const cpu::AmaxCodesPasses& passes>
Status int8_grad(const void* g, Dtype dtype, std::int64_t count, float gain, std::int8_t* q, const Parallel& parallel) {
  const Status status = check(dtype, count);
  if (status != Status::ok) return status;
  const Extremes all = extremes_of<passes>(g, dtype, count, gain, parallel);
  const AmaxFactor factor = grad_factor(all.min, all.max, all.all_finite);
  return cpu::for_elements(count, parallel, [&](std::int64_t begin, std::int64_t end) {
    if (factor.by == 0)  // and elements may be NaN
      std::memset(q + begin, 0, static_cast<std::size_t>(end - begin));
    else
      passes.int8_grad(g, dtype, begin, end - begin, gain, factor, q);
  });
}

template <const cpu::AmaxCodesPasses& passes>
Status binary_init(const void* w, Dtype dtype, std::int64_t count, std::int8_t* q, float* scale,
                   const Parallel& parallel) {
  const Status status = check(dtype, count);
  if (status != Status::ok) return status;
  if (count == 0) return Status::bad_shape;
  const Extremes all = extremes_of<passes>(w, dtype, count, 1, parallel);
  if (!all.all_finite) return Status::not_finite;
  const MeanKernel& means = mean_table().back();  // once a layer
  *scale = means.magnitudes(w, dtype, count, parallel);
  const float centre = means.elements(w, dtype, count, parallel);
  if (!std::isfinite(all.max - centre)) return Status::bad_scale;
  const AmaxFactor factor = centred_factor(all.max, centre);
  return cpu::for_elements(count, parallel, [&](std::int64_t begin, std::int64_t end) {
    passes.binary_init(w, dtype, begin, end - begin, centre, factor, q);
  });
}

template <const cpu::AmaxCodesPasses& passes>
constexpr AmaxCodesKernel kernel(const char* name, Isa isa) {
  return {name, isa, nullptr, extremes<passes>, amax_quantize<passes>, int8_grad<passes>, binary_init<passes>};
}

}  // namespace

Table<AmaxCodesKernel> amax_codes_table() {
  static const AmaxCodesKernel best_first[] = {
#if defined(BIE_X86)
    kernel<cpu::avx2::amax_codes_passes>("amax_codes_avx2", Isa::avx2),
#endif
    kernel<cpu::plain::amax_codes_passes>("amax_codes_reference", Isa::reference),
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
