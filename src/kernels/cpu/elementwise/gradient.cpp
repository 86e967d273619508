// The kernels of gradient, best first.
#include "bie/kernels/gradient.h"

#include <cstdint>

#include "kernels/arithmetic/codes.h"
#include "kernels/arithmetic/float_bits.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/passes.h"

namespace bie::kernels {
namespace {

template <const cpu::GradientPasses& passes>
Status quantized_values(const float* x, std::int64_t count, float scale, const CodeBounds& codes, float by, float* out,
                        const Parallel& parallel) {
  const float step = lifted(scale, codes.floor);
  return cpu::for_elements(count, parallel, [&](std::int64_t begin, std::int64_t end) {
    passes.quantized_values(x + begin, end - begin, step, codes.lo, codes.hi, by, out + begin);
  });
}

template <const cpu::GradientPasses& passes>
Status code_values(const std::int8_t* codes, std::int64_t count, float scale, float* out, const Parallel& parallel) {
  return cpu::for_elements(count, parallel, [&](std::int64_t begin, std::int64_t end) {
    passes.code_values(codes + begin, end - begin, scale, out + begin);
  });
}

/// The largest float whose quotient by step rounds to at most `bound`: a comparison with it replaces a division. Places
/// are those of floats in their order.
float last_inside(float bound, float step) {
  const auto at = [](std::int64_t place) {
    const float magnitude = float_from_bits(static_cast<std::uint32_t>(place < 0 ? -place : place));
    return place < 0 ? -magnitude : magnitude;
  };
  std::int64_t inside = -0x7f800000, outside = 0x7f800000;  // infinity
  while (outside - inside > 1) {
    const std::int64_t middle = (inside + outside) / 2;
    (at(middle) / step <= bound ? inside : outside) = middle;
  }
  return at(inside);
}

template <const cpu::GradientPasses& passes>
Status mask_clipped(float* grad, const float* w, std::int64_t count, float scale, const CodeBounds& codes,
                    const Parallel& parallel) {
  const float step = lifted(scale, codes.floor);
  const float low = -last_inside(-codes.lo, step), high = last_inside(codes.hi, step);
  return cpu::for_elements(count, parallel, [&](std::int64_t begin, std::int64_t end) {
    passes.mask_outside(grad + begin, w + begin, end - begin, low, high);
  });
}

template <const cpu::GradientPasses& passes>
Status sign_values(const void* t, Dtype dtype, std::int64_t count, float scale, float* out, const Parallel& parallel) {
  if (!is_float(dtype) && dtype != Dtype::s8) return Status::bad_dtype;
  return cpu::for_elements(count, parallel, [&](std::int64_t begin, std::int64_t end) {
    passes.sign_values(t, dtype, begin, end - begin, scale, out);
  });
}

template <const cpu::GradientPasses& passes>
Status sign_codes(const std::int8_t* t, std::int64_t count, std::int8_t* out, const Parallel& parallel) {
  return cpu::for_elements(count, parallel, [&](std::int64_t begin, std::int64_t end) {
    passes.sign_codes(t + begin, end - begin, out + begin);
  });
}

template <const cpu::GradientPasses& passes>
Status accumulate(std::int8_t* sum, const std::int8_t* grad, std::int64_t count, const Parallel& parallel) {
  return cpu::for_elements(count, parallel, [&](std::int64_t begin, std::int64_t end) {
    passes.accumulate(sum + begin, grad + begin, end - begin);
  });
}

template <const cpu::GradientPasses& passes>
constexpr GradientKernel kernel(const char* name, Isa isa) {
  return {name,
          isa,
          nullptr,
          quantized_values<passes>,
          code_values<passes>,
          mask_clipped<passes>,
          sign_values<passes>,
          sign_codes<passes>,
          accumulate<passes>};
}

}  // namespace

Table<GradientKernel> gradient_table() {
  static const GradientKernel best_first[] = {
#if defined(BIE_X86)
    kernel<cpu::avx2::gradient_passes>("gradient_avx2", Isa::avx2),
#endif
    kernel<cpu::plain::gradient_passes>("gradient_reference", Isa::reference),
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
