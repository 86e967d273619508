// Vectors of 16 bytes, as g++ and clang have them for every CPU. Included by the sources of this folder alone.
#pragma once

#include <cstdint>
#include <cstring>

namespace bie::kernels::cpu::portable {
namespace {

using Words = std::uint32_t __attribute__((vector_size(16)));
using Floats = float __attribute__((vector_size(16)));

// Registers that a tile may fill: x86 without AVX has sixteen, the others have thirty-two.
#if defined(__x86_64__)
inline constexpr bool many_registers = false;
#else
inline constexpr bool many_registers = true;
#endif

template <class Vector>
[[gnu::always_inline]] inline Vector load(const void* from) {
  Vector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

}  // namespace
}  // namespace bie::kernels::cpu::portable
