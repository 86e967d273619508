// The eight tiles of AMX, 16 rows of 64 bytes each. With BIE_AMX_EMULATED they are arrays, so that the loops over them
// are tested on every CPU. Private to this folder: everything sits in an unnamed namespace.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace bie::kernels::cpu::BIE_AMX_SET {
namespace {

#if defined(BIE_AMX_EMULATED)

struct Tiles {
  bool configured = false;
  unsigned char bytes[8][16][64] = {};
};
constinit thread_local Tiles tiles;
// Sanitizers leave out the arithmetic within the tiles, which would take most of the tests' time under them.
#define BIE_WITHIN_TILES __attribute__((no_sanitize("address", "undefined")))

void configure_tiles() {
  tiles.configured = true;
  std::memset(tiles.bytes, 0, sizeof tiles.bytes);
}
void release_tiles() { tiles.configured = false; }
template <int T>
void zero_tile() {
  if (!tiles.configured) __builtin_trap();
  std::memset(tiles.bytes[T], 0, sizeof tiles.bytes[T]);
}
template <int T>
void load_tile(const void* from, std::int64_t stride) {
  for (int r = 0; r < 16; ++r) std::memcpy(tiles.bytes[T][r], static_cast<const char*>(from) + r * stride, 64);
}
template <int T>
void store_tile(void* to, std::int64_t stride) {
  for (int r = 0; r < 16; ++r) std::memcpy(static_cast<char*>(to) + r * stride, tiles.bytes[T][r], 64);
}
/// acc[r][c] += sum over j < 16 and i < 4 of a[r][4 j + i] * b[j][4 c + i].
template <class OfA, class OfB, int Acc, int A, int B>
BIE_WITHIN_TILES void dot_bytes() {
  auto* const bytes = tiles.bytes;
  for (int r = 0; r < 16; ++r)
    for (int c = 0; c < 16; ++c) {
      std::uint32_t acc;
      __builtin_memcpy(&acc, bytes[Acc][r] + 4 * c, 4);
      for (int j = 0; j < 16; ++j)
        for (int i = 0; i < 4; ++i)
          acc += static_cast<std::uint32_t>(static_cast<OfA>(bytes[A][r][4 * j + i]) *
                                            static_cast<OfB>(bytes[B][j][4 * c + i]));
      __builtin_memcpy(bytes[Acc][r] + 4 * c, &acc, 4);
    }
}
template <int Acc, int A, int B>
void dot() {
  dot_bytes<std::uint8_t, std::int8_t, Acc, A, B>();
}
template <int Acc, int A, int B>
void dot_signed() {
  dot_bytes<std::int8_t, std::uint8_t, Acc, A, B>();
}

/// acc[r][c] += sum over j < 16 and i < 2 of a[r][2 j + i] * b[j][2 c + i], of bfloat16.
template <int Acc, int A, int B>
BIE_WITHIN_TILES void dot_bf16() {
  auto* const bytes = tiles.bytes;
  const auto value = [](const unsigned char* from) BIE_WITHIN_TILES {
    const std::uint32_t bits = static_cast<std::uint32_t>(from[0] | from[1] << 8) << 16;
    float as_float;
    __builtin_memcpy(&as_float, &bits, 4);
    return as_float;
  };
  for (int r = 0; r < 16; ++r)
    for (int c = 0; c < 16; ++c) {
      float acc;
      __builtin_memcpy(&acc, bytes[Acc][r] + 4 * c, 4);
      for (int j = 0; j < 16; ++j)
        for (int i = 0; i < 2; ++i) acc += value(bytes[A][r] + 4 * j + 2 * i) * value(bytes[B][j] + 4 * c + 2 * i);
      __builtin_memcpy(bytes[Acc][r] + 4 * c, &acc, 4);
    }
}
#undef BIE_WITHIN_TILES

#else

// Assembly, because the intrinsics of g++ are macros that take a tile's number as a literal alone.

/// A thread configures its tiles before use and releases them afterwards, so that a context switch need not save them.
void configure_tiles() {
  struct alignas(64) Config {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static_assert(sizeof(Config) == 64);
  const Config config;
  asm volatile("ldtilecfg %0" ::"m"(config));
}
void release_tiles() {
  _mm_sfence();  // what was written past the caches is seen by whoever is told that the task has ended
  asm volatile("tilerelease");
}
template <int T>
[[gnu::always_inline]] inline void zero_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(T));
}
template <int T>
[[gnu::always_inline]] inline void load_tile(const void* from, std::int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(T) : "memory");
}
template <int T>
[[gnu::always_inline]] inline void store_tile(void* to, std::int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(T) : "memory");
}
/// Unsigned rows, signed columns.
template <int Acc, int A, int B>
[[gnu::always_inline]] inline void dot() {
  asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Acc), "i"(A), "i"(B));
}
/// Signed rows, unsigned columns.
template <int Acc, int A, int B>
[[gnu::always_inline]] inline void dot_signed() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Acc), "i"(A), "i"(B));
}
template <int Acc, int A, int B>
[[gnu::always_inline]] inline void dot_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Acc), "i"(A), "i"(B));
}

#endif

}  // namespace
}  // namespace bie::kernels::cpu::BIE_AMX_SET
