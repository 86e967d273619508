// What the loops of float_gemm read of the second operand at each k: 16 neighbours of a panel, or of a window that lies
// where an offset says. Everything sits in an unnamed namespace, because folders of instruction sets include it.
#pragma once

#include <cstdint>

namespace bie::kernels::cpu {
namespace {

struct Panel {
  const float* first;
  const float* row(std::int64_t i) const { return first + i * 16; }
};

struct Scattered {
  const float* from;
  const std::int64_t* offsets;
  const float* row(std::int64_t i) const { return from + offsets[i]; }
};

}  // namespace
}  // namespace bie::kernels::cpu
