// The loops of sigmoid.h, which the compiler makes vectors of. Everything sits in an unnamed namespace, because folders
// of instruction sets include it.
#pragma once

#include "kernels/arithmetic/sigmoid.h"

namespace bie::kernels::cpu {
namespace {

void sigmoid(const float* x, std::int64_t count, float* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = sigmoid_of(x[i]);
}

void silu(const float* x, std::int64_t count, float* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] * sigmoid_of(x[i]);
}

}  // namespace
}  // namespace bie::kernels::cpu
