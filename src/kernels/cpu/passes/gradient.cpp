#include "kernels/arithmetic/estimator.h"
#include "kernels/cpu/passes.h"
#include "kernels/cpu/passes/chunks.h"

namespace bie::kernels::cpu {
namespace {

void quantized_values(const float* x, std::int64_t count, float step, float lo, float hi, float by, float* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = round_clamped(x[i] / step, lo, hi) * by;
}

void code_values(const std::int8_t* codes, std::int64_t count, float by, float* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(codes[i]) * by;
}

void mask_outside(float* grad, const float* w, std::int64_t count, float low, float high) {
  for (std::int64_t i = 0; i < count; ++i) grad[i] *= inside_range(w[i], low, high);
}

void sign_values(const void* t, Dtype dtype, std::int64_t first, std::int64_t count, float by, float* out) {
  for_chunks(first, count, [&](std::int64_t at, std::int64_t n) {
    Floats buffer;
    const float* const x = widened(t, dtype, at, n, buffer);
    float* const to = out + at;
    for (std::int64_t i = 0; i < n; ++i) to[i] = sign(x[i]) * by;
  });
}

void sign_codes(const std::int8_t* t, std::int64_t count, std::int8_t* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<std::int8_t>((t[i] > 0) - (t[i] < 0));
}

void accumulate(std::int8_t* sum, const std::int8_t* grad, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const int both = sum[i] + grad[i], above = both < -127 ? -127 : both;
    sum[i] = static_cast<std::int8_t>(above > 127 ? 127 : above);
  }
}

}  // namespace

const GradientPasses BIE_PASS_SET::gradient_passes = {quantized_values, code_values, mask_outside,
                                                      sign_values,      sign_codes,  accumulate};

}  // namespace bie::kernels::cpu
