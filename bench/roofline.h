// Roofline of this core, measured: instructions of the hot loops in registers, and reading from each level of memory.
#pragma once

#include <cstdint>
#include <vector>

#include "bie/kernels/dtype.h"
#include "bie/kernels/isa.h"

namespace bie::bench {

/// The instructions that multiply. A product is one activation times one weight.
enum class Unit : std::uint8_t {
  none,
  popcount512,  ///< vpxord, vpopcntd, vpaddd
  dot512,       ///< vpdpbusd
  dot256,       ///< vpdpbusd, in the form that the CPU has
  shuffles512,  ///< what popcount256 is, of 512 bits
  madd512,
  maddubs512,
  popcount256,  ///< vpxor, vpshufb of both nibbles, vpaddb
  madd256,      ///< vpmaddwd, vpaddd: of int16, because vpmaddubsw saturates where int8 meets int8
  maddubs256,   ///< vpmaddubsw, vpaddw: of int4
  fma512,       ///< vfmadd of float32
  fma256,
  tiles,  ///< tdpbusd of AMX
};
inline constexpr int units = 13;

/// Unit with which a kernel of this instruction set multiplies codes of this width.
Unit unit_of(kernels::Isa isa, kernels::Dtype code);
/// Unit with which it multiplies floats.
Unit float_unit_of(kernels::Isa isa);

/// Products a second, from one burst of 0.1 to 0.5 ms. The processor has to have the instructions.
double burst(Unit unit);

/// Least work of a call: its products, and reading its panels (64-byte aligned) once.
struct Work {
  Unit unit = Unit::none;
  double products = 0;
  const void* panels = nullptr;
  std::int64_t panel_bytes = 0;
};

/// Loads every byte of `data`, which is aligned to 32, but for a last piece of less than 512.
void read_all(const void* data, std::int64_t bytes);

/// How fast one core reads from each level of its memory.
struct Level {
  const char* name;
  double bytes_a_second;
};
std::vector<Level> reading_speeds();

/// CPU seconds of this thread.
double thread_seconds();

}  // namespace bie::bench
