// How rows of codes lie in device memory, activations and panels alike, and how they are read and written.
//
// A row is whole 16-byte chunks, and codes behind the last element are 0. Long rows of a matrix begin on a line of the
// cache each: the TMA copies them in pieces of a line, and takes twice as long where every piece lies on two.
//
//   bits     bit i of byte j is element 8j+i; behind the last row one int32 per row, its number of ones
//   bytes    one code per byte
//   wide     one 4-bit code per byte, padded to 32 elements: what meets `nibbles` in a product
//   nibbles  32 elements a chunk; byte 4t+j has element 4t+j in its low half and 16+4t+j in its high half, so that two
//            masks turn a word into the two operand registers of an 8-bit product
#pragma once

#include <cstdint>
#include <type_traits>

#include "bie/kernels/cuda/conv2d.h"
#include "kernels/arithmetic/codes.h"
#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/launch.cuh"

namespace bie::kernels::cuda {

enum class Format { bits, bytes, wide, nibbles };

constexpr std::int64_t chunk_bytes = 16;

/// Chunks of a row of k elements.
constexpr std::int64_t row_chunks(Format format, std::int64_t k) {
  switch (format) {
    case Format::bits: return (k + 127) / 128;
    case Format::bytes: return (k + 15) / 16;
    case Format::wide: return (k + 31) / 32 * 2;
    case Format::nibbles: return (k + 31) / 32;
  }
  return 0;
}

/// Bytes from one row of a matrix to the next.
constexpr std::int64_t row_stride(Format format, std::int64_t k) {
  constexpr std::int64_t line = 128, worth_it = 8 * line;
  const std::int64_t bytes = row_chunks(format, k) * chunk_bytes;
  return bytes < worth_it ? bytes : (bytes + line - 1) / line * line;
}

/// Bytes of a row's number of ones.
constexpr std::int64_t ones_bytes(Format format) { return format == Format::bits ? std::int64_t{sizeof(int)} : 0; }

/// Bytes that a row takes, its number of ones included.
constexpr std::int64_t whole_row(Format format, std::int64_t k) { return row_stride(format, k) + ones_bytes(format); }

/// Whether data, and rows that far apart, begin at multiples of so many bytes.
inline bool aligned(const void* data, std::int64_t stride, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(bytes) == 0 && stride % bytes == 0;
}

/// The least and the largest code.
struct Range {
  float lo, hi;
};
constexpr Range range_s8{-128, 127}, range_s4{-8, 7};

/// A workspace starts with one flag for each block that encodes: not 0 where it met NaN or infinity.
constexpr std::int64_t flag_bytes = most_flags * 4;

struct Flags {
  const int* data;
  int count;
};

// Readers of elements that become codes. A reader gives element i of a row, as a float or as a code that is kept; or
// eight elements from a multiple of eight on, in a row aligned to 16 bytes. Loading and opening the eight are separate
// steps, so that several loads are in flight.
struct PackedS4 {};
struct PackedBits {};

template <class T>
struct Reader {
  static constexpr bool quantises = true;
  static __device__ float get(const void* row, std::int64_t i) { return widen(static_cast<const T*>(row)[i]); }
  union Eight {
    uint4 pieces[sizeof(T) / 2];
    T at[8];
    __device__ Eight() {}
  };
  static __device__ Eight load_eight(const void* row, std::int64_t i) {
    Eight eight;
    const auto* from = reinterpret_cast<const uint4*>(static_cast<const T*>(row) + i);
#pragma unroll
    for (int piece = 0; piece < static_cast<int>(sizeof(T)) / 2; ++piece) eight.pieces[piece] = __ldg(from + piece);
    return eight;
  }
  static __device__ void open(const Eight& eight, float (&to)[8]) {
#pragma unroll
    for (int j = 0; j < 8; ++j) to[j] = widen(eight.at[j]);
  }
};
template <>
struct Reader<std::int8_t> {
  static constexpr bool quantises = false;
  static __device__ float get(const void* row, std::int64_t i) { return static_cast<const std::int8_t*>(row)[i]; }
  using Eight = uint2;
  static __device__ Eight load_eight(const void* row, std::int64_t i) {
    return __ldg(reinterpret_cast<const uint2*>(static_cast<const char*>(row) + i));
  }
  static __device__ void open(const Eight& eight, float (&to)[8]) {
#pragma unroll
    for (int j = 0; j < 8; ++j) to[j] = static_cast<std::int8_t>((j < 4 ? eight.x : eight.y) >> 8 * (j % 4) & 255);
  }
};
template <>
struct Reader<PackedS4> {
  static constexpr bool quantises = false;
  static __device__ float get(const void* row, std::int64_t i) {
    const int byte = static_cast<const std::uint8_t*>(row)[i / 2];
    const int nibble = i % 2 == 0 ? byte >> 4 : byte & 15;
    return static_cast<float>((nibble ^ 8) - 8);
  }
  using Eight = unsigned;
  static __device__ Eight load_eight(const void* row, std::int64_t i) {
    return __ldg(reinterpret_cast<const unsigned*>(static_cast<const char*>(row) + i / 2));
  }
  static __device__ void open(Eight eight, float (&to)[8]) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int nibble = eight >> (8 * (j / 2) + (j % 2 == 0 ? 4 : 0)) & 15;
      to[j] = static_cast<float>((nibble ^ 8) - 8);
    }
  }
};
template <>
struct Reader<PackedBits> {
  static constexpr bool quantises = false;
  static __device__ float get(const void* row, std::int64_t i) {
    return (static_cast<const std::uint8_t*>(row)[i / 8] >> (i % 8)) & 1 ? 1.0f : -1.0f;
  }
  using Eight = std::uint8_t;
  static __device__ Eight load_eight(const void* row, std::int64_t i) {
    return static_cast<const std::uint8_t*>(row)[i / 8];
  }
  static __device__ void open(Eight eight, float (&to)[8]) {
#pragma unroll
    for (int j = 0; j < 8; ++j) to[j] = eight >> j & 1 ? 1.0f : -1.0f;
  }
};

/// body(Reader) for a dtype, where `Packed` is the packed type that the caller knows (void: none).
template <class Packed, class Body>
Status with_reader(Dtype dtype, const Body& body) {
  switch (dtype) {
    case Dtype::f32: return body(Reader<float>{});
    case Dtype::bf16: return body(Reader<__nv_bfloat16>{});
    case Dtype::f16: return body(Reader<__half>{});
    case Dtype::s8: return body(Reader<std::int8_t>{});
    case Dtype::s4:
      if constexpr (std::is_same_v<Packed, PackedS4>) return body(Reader<PackedS4>{});
      break;
    case Dtype::bits:
      if constexpr (std::is_same_v<Packed, PackedBits>) return body(Reader<PackedBits>{});
      break;
    case Dtype::s32: break;
  }
  return Status::bad_dtype;
}

/// Element i of a row as xs, or as the code it is; `finite` is cleared where it is neither.
template <class R>
__device__ float read(const void* row, std::int64_t i, const float* bias, bool* finite) {
  float value = R::get(row, i);
  if (R::quantises) {
    if (bias != nullptr) value += bias[i];
    *finite = *finite && isfinite(value);
  }
  return value;
}

/// The code of xs, or a code as it is; of a 4-bit code in a byte the low four bits, as packing takes them.
template <class R>
__device__ int code(float value, float step, const Range& range) {
  if (R::quantises) return quantize(value, step, range.lo, range.hi);
  const int given = static_cast<int>(value);
  return range.lo == range_s4.lo ? ((given & 15) ^ 8) - 8 : given;
}

__device__ inline unsigned pack_bytes(const int (&codes)[4]) {
  return (codes[0] & 255) | (codes[1] & 255) << 8 | (codes[2] & 255) << 16 | static_cast<unsigned>(codes[3]) << 24;
}

/// Word `w` of a row of bytes, wide or nibbles; element(i) is the code of element i, 0 behind the last one.
template <Format format, class Element>
__device__ unsigned word_of(std::int64_t w, const Element& element) {
  int codes[4];
  if constexpr (format == Format::nibbles) {
    const std::int64_t first = w / 4 * 32 + w % 4 * 4;
#pragma unroll
    for (int j = 0; j < 4; ++j) codes[j] = (element(first + j) & 15) | element(first + 16 + j) << 4;
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) codes[j] = element(4 * w + j);
  }
  return pack_bytes(codes);
}

}  // namespace bie::kernels::cuda
