#include "bie/kernels/sigmoid.h"

#include <cmath>

#include "kernels/reference/reference.h"

namespace bie::kernels::reference {
namespace {

float exp_of(float z) {
  if (std::isnan(z)) return z;
  if (z < -104) z = -104;
  const float n = std::nearbyint(z * 0x1.715476p0f);
  const float r = (z - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  float q = 0x1.6a4ce4p-10f;
  for (const float c : {0x1.123988p-7f, 0x1.5558bp-5f, 0x1.555492p-3f, 0x1.fffffcp-2f}) q = c + r * q;
  return std::ldexp(1 + (r + r * r * q), static_cast<int>(n));
}

float sigmoid_of_one(float x) {
  const float e = exp_of(-std::fabs(x));
  return x < 0 ? e / (1 + e) : 1 / (1 + e);
}

Status run(std::int64_t count, const float* x, float* y, const Parallel&) {
  if (count < 0) return Status::bad_shape;
  for (std::int64_t i = 0; i < count; ++i) y[i] = sigmoid_of_one(x[i]);
  return Status::ok;
}

Status run_silu(std::int64_t count, const float* x, float* y, const Parallel&) {
  if (count < 0) return Status::bad_shape;
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] * sigmoid_of_one(x[i]);
  return Status::ok;
}

}  // namespace

const SigmoidKernel sigmoid = {"sigmoid_reference", Isa::reference, nullptr, run, run_silu};

}  // namespace bie::kernels::reference
