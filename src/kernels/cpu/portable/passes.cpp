#include "kernels/cpu/portable/passes.h"

#include <cstring>

#include "kernels/arithmetic/codes.h"
#include "kernels/arithmetic/float_bits.h"
#include "kernels/cpu/passes.h"

namespace bie::kernels::cpu::portable {
namespace {

constexpr std::int64_t chunk = 64;

std::int64_t element_bytes(Dtype dtype) { return dtype == Dtype::f32 ? 4 : dtype == Dtype::s8 ? 1 : 2; }

/// Infinity and NaN, whose exponents are the largest.
std::uint32_t past_all_numbers(float v) { return (bits_from_float(v) & 0x7fffffffu) >= 0x7f800000u ? 1 : 0; }

/// `count` elements as floats.
void widen(const void* from, Dtype dtype, std::int64_t count, float* to) {
  if (dtype == Dtype::bf16) {
    const auto* x = static_cast<const std::uint16_t*>(from);
    for (std::int64_t i = 0; i < count; ++i) to[i] = float_from_bf16(x[i]);
  } else if (dtype == Dtype::f16) {
    const auto* x = static_cast<const std::uint16_t*>(from);
    for (std::int64_t i = 0; i < count; ++i) to[i] = float_from_f16(x[i]);
  } else if (dtype == Dtype::s8) {
    const auto* x = static_cast<const std::int8_t*>(from);
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(x[i]);
  } else {
    std::memcpy(to, from, static_cast<std::size_t>(4 * count));
  }
}

constexpr struct Bits {
  std::uint32_t of[32];
  constexpr Bits() : of{} {
    for (int i = 0; i < 32; ++i) of[i] = 1u << i;
  }
} bits;

/// 32 signs.
std::uint32_t sign_word(const float* x) {
  std::uint32_t word = 0;
  for (int i = 0; i < 32; ++i) word |= x[i] >= 0 ? bits.of[i] : 0;
  return word;
}

/// clamp(rint(x / step), lo, hi); codes as they are where they were codes.
void quantize(const EncodeArgs& a, std::int64_t count, float* x) {
  if (a.dtype == Dtype::s8) return;
  const float lo = static_cast<float>(a.lo), hi = static_cast<float>(a.hi);
  for (std::int64_t i = 0; i < count; ++i) x[i] = round_clamped(x[i] / a.step, lo, hi);
}

template <class T>
void convert(const float* x, std::int64_t count, int offset, void* out) {
  auto* const to = static_cast<T*>(out);
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(static_cast<std::int32_t>(x[i]) + offset);
}

/// Codes first ... first + count - 1 of a row; x is written over.
void put(const EncodeArgs& a, float* x, std::int64_t first, std::int64_t count, char* row) {
  switch (a.code) {
    case Code::bits:
      for (std::int64_t i = count; i < chunk; ++i) x[i] = -1;  // bits beyond the last are 0
      for (std::int64_t i = 0; i < count; i += 32) {
        const std::uint32_t word = sign_word(x + i);
        std::memcpy(row + (first + i) / 8, &word, 4);
      }
      return;
    case Code::u8_b1:
      for (std::int64_t i = 0; i < count; ++i) row[first + i] = x[i] >= 0 ? 2 : 0;
      return;
    case Code::f32_b1:
      for (std::int64_t i = 0; i < count; ++i) x[i] = x[i] >= 0 ? 1.0f : -1.0f;
      std::memcpy(row + 4 * first, x, static_cast<std::size_t>(4 * count));
      return;
    default: break;
  }
  quantize(a, count, x);
  switch (a.code) {
    case Code::f32: std::memcpy(row + 4 * first, x, static_cast<std::size_t>(4 * count)); return;
    case Code::s16_s8: return convert<std::int16_t>(x, count, 0, row + 2 * first);
    case Code::u8_s8: return convert<std::uint8_t>(x, count, 128, row + first);
    case Code::u8_s4: return convert<std::uint8_t>(x, count, 8, row + first);
    default: return convert<std::int8_t>(x, count, 0, row + first);
  }
}

std::int64_t bytes_of(Code code, std::int64_t count) {
  switch (code) {
    case Code::bits: return (count + 31) / 32 * 4;
    case Code::f32:
    case Code::f32_b1: return 4 * count;
    case Code::s16_s8: return 2 * count;
    default: return count;
  }
}

}  // namespace

bool encode(const EncodeArgs& a) {
  std::uint32_t bad = 0;
  float x[chunk];
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const char* const from = static_cast<const char*>(a.x) + row * a.x_stride;
    char* const out = static_cast<char*>(a.out) + row * a.out_stride;
    for (std::int64_t first = 0; first < a.count; first += chunk) {
      const std::int64_t count = a.count - first < chunk ? a.count - first : chunk;
      widen(from + first * element_bytes(a.dtype), a.dtype, count, x);
      if (a.dtype != Dtype::s8 && a.bias != nullptr && a.bias_step == 0) {
        for (std::int64_t i = 0; i < count; ++i) x[i] += *a.bias;
      } else if (a.dtype != Dtype::s8 && a.bias != nullptr) {
        for (std::int64_t i = 0; i < count; ++i) x[i] += a.bias[first + i];
      }
      for (std::int64_t i = 0; i < count && a.dtype != Dtype::s8; ++i) bad |= past_all_numbers(x[i]);
      put(a, x, first, count, out);
    }
    const std::int64_t written = bytes_of(a.code, a.count);
    if (written < a.row_bytes) std::memset(out + written, 0, static_cast<std::size_t>(a.row_bytes - written));
  }
  return bad == 0;
}

bool sign_planes(const SignPlanesArgs& a) {
  std::uint32_t bad = 0;
  float x[chunk];
  std::uint32_t words[chunk];
  for (std::int64_t first = 0; first < a.channels; first += 32)
    for (std::int64_t p = 0; p < a.pixels; p += chunk) {
      const std::int64_t count = a.pixels - p < chunk ? a.pixels - p : chunk;
      for (std::int64_t i = 0; i < count; ++i) words[i] = 0;
      for (std::int64_t c = first; c < a.channels && c < first + 32; ++c) {
        widen(static_cast<const char*>(a.x) + (c * a.plane + p) * element_bytes(a.dtype), a.dtype, count, x);
        const float bias = a.dtype == Dtype::s8 || a.bias == nullptr ? 0.0f : a.bias[c];
        const std::uint32_t bit = 1u << (c - first);
        for (std::int64_t i = 0; i < count; ++i) {
          const float xs = x[i] + bias;
          bad |= past_all_numbers(xs);
          words[i] |= xs >= 0 ? bit : 0;
        }
      }
      std::memcpy(a.out + first / 32 * a.word_stride + p, words, static_cast<std::size_t>(4 * count));
    }
  return bad == 0;
}

void store(const StoreArgs& a) {
  if (a.dtype == Dtype::f32) {
    auto* const y = static_cast<float*>(a.out);
    for (std::int64_t i = 0; i < a.count; ++i) y[i] = static_cast<float>(a.acc[i]) * a.scale;
  } else if (a.dtype == Dtype::s32) {
    std::memcpy(a.out, a.acc, static_cast<std::size_t>(4 * a.count));
  } else if (a.dtype == Dtype::bf16) {
    auto* const y = static_cast<std::uint16_t*>(a.out);
    for (std::int64_t i = 0; i < a.count; ++i) y[i] = bf16_from_float(static_cast<float>(a.acc[i]) * a.scale);
  } else {
    auto* const y = static_cast<std::uint16_t*>(a.out);
    for (std::int64_t i = 0; i < a.count; ++i) y[i] = f16_from_float(static_cast<float>(a.acc[i]) * a.scale);
  }
}

bool tail(const TailArgs& a) { return plain::code_tail_passes.tail_rows(a); }

std::uint64_t signs_of(const std::int32_t* acc, int count, float scale, const float* bias) {
  float y[chunk];
  for (int i = 0; i < count; ++i) y[i] = static_cast<float>(acc[i]) * scale;
  for (int i = 0; i < count && bias != nullptr; ++i) y[i] += bias[i];
  for (int i = count; i < chunk; ++i) y[i] = -1;
  return sign_word(y) | static_cast<std::uint64_t>(sign_word(y + 32)) << 32;
}

void pack_int4(const std::int8_t* codes, std::int64_t k, std::uint8_t* packed) {
  for (std::int64_t i = 0; i < k / 2; ++i)
    packed[i] = static_cast<std::uint8_t>((codes[2 * i] & 15) << 4 | (codes[2 * i + 1] & 15));
  if (k % 2 != 0) packed[k / 2] = static_cast<std::uint8_t>((codes[k - 1] & 15) << 4);
}

}  // namespace bie::kernels::cpu::portable
