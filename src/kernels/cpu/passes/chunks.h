// Arrays of any dtype as float32: a chunk at a time that stays in the first-level cache is widened where it is no
// float32, and narrowed again. Included by the sources of this folder alone, which have copies of their own.
#pragma once

#include <cstdint>

#include "bie/kernels/dtype.h"
#include "kernels/arithmetic/float_bits.h"

namespace bie::kernels::cpu {
namespace {

constexpr std::int64_t chunk = 256;
using Floats = float[chunk];

/// Elements [first, first + count) of an array, count <= chunk: the array itself or the buffer. f32, bf16, f16 or s8.
[[maybe_unused]] const float* widened(const void* from, Dtype dtype, std::int64_t first, std::int64_t count,
                                      Floats& buffer) {
  if (dtype == Dtype::bf16) {
    const std::uint16_t* x = static_cast<const std::uint16_t*>(from) + first;
    for (std::int64_t i = 0; i < count; ++i) buffer[i] = float_from_bf16(x[i]);
  } else if (dtype == Dtype::f16) {
    const std::uint16_t* x = static_cast<const std::uint16_t*>(from) + first;
    for (std::int64_t i = 0; i < count; ++i) buffer[i] = float_from_f16(x[i]);
  } else if (dtype == Dtype::s8) {
    const std::int8_t* x = static_cast<const std::int8_t*>(from) + first;
    for (std::int64_t i = 0; i < count; ++i) buffer[i] = static_cast<float>(x[i]);
  } else {
    return static_cast<const float*>(from) + first;
  }
  return buffer;
}

/// Where floats go that narrowed() then stores: the array itself where it is float32.
[[maybe_unused]] float* wide_place(void* to, Dtype dtype, std::int64_t first, Floats& buffer) {
  return dtype == Dtype::f32 ? static_cast<float*>(to) + first : buffer;
}

/// Rounded to nearest even.
[[maybe_unused]] void narrowed(const float* from, std::int64_t count, void* to, Dtype dtype, std::int64_t first) {
  if (dtype == Dtype::bf16) {
    std::uint16_t* x = static_cast<std::uint16_t*>(to) + first;
    for (std::int64_t i = 0; i < count; ++i) x[i] = bf16_from_float(from[i]);
  } else if (dtype == Dtype::f16) {
    std::uint16_t* x = static_cast<std::uint16_t*>(to) + first;
    for (std::int64_t i = 0; i < count; ++i) x[i] = f16_from_float(from[i]);
  }
}

/// body(first, count) for every chunk of [first, first + count).
template <class Body>
void for_chunks(std::int64_t first, std::int64_t count, const Body& body) {
  const std::int64_t end = first + count;
  for (; first < end; first += chunk) body(first, end - first < chunk ? end - first : chunk);
}

}  // namespace
}  // namespace bie::kernels::cpu
