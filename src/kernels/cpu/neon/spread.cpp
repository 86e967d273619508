// A line of pixels as units that meet sixteen outputs side by side.
#include <arm_neon.h>

#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::neon {
namespace {

/// Sixteen lanes of codes of a pixel, `held` bytes each.
template <int held>
struct Codes {
  uint8x16_t v[held];
};

template <int held>
Codes<held> load(const char* at) {
  Codes<held> codes;
#pragma GCC unroll 4
  for (int i = 0; i < held; ++i) codes.v[i] = vld1q_u8(reinterpret_cast<const std::uint8_t*>(at) + 16 * i);
  return codes;
}

/// The bytes that each lane takes of those a pixel has.
template <int held>
Codes<held> places(const std::int32_t* lanes) {
  alignas(16) std::uint8_t bytes[16 * held];
  for (int i = 0; i < 16 * held; ++i) bytes[i] = static_cast<std::uint8_t>(lanes[i / held] * held + i % held);
  return load<held>(reinterpret_cast<const char*>(bytes));
}

uint8x16_t taken(const Codes<1>& c, uint8x16_t from) { return vqtbl1q_u8(c.v[0], from); }
uint8x16_t taken(const Codes<2>& c, uint8x16_t from) { return vqtbl2q_u8({{c.v[0], c.v[1]}}, from); }
uint8x16_t taken(const Codes<4>& c, uint8x16_t from) { return vqtbl4q_u8({{c.v[0], c.v[1], c.v[2], c.v[3]}}, from); }

template <int held, bool in_order>
Codes<held> codes_at(const char* at, const Codes<held>& from) {
  const Codes<held> codes = load<held>(at);
  if constexpr (in_order) {
    return codes;
  } else {
    Codes<held> moved;
#pragma GCC unroll 4
    for (int i = 0; i < held; ++i) moved.v[i] = taken(codes, from.v[i]);
    return moved;
  }
}

void put(const Codes<4>& units, char* out) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) vst1q_u8(reinterpret_cast<std::uint8_t*>(out) + 16 * i, units.v[i]);
}

/// Codes of one pixel and behind them those of another.
Codes<2> beside(const Codes<1>& a, const Codes<1>& b) {
  return {{vzip1q_u8(a.v[0], b.v[0]), vzip2q_u8(a.v[0], b.v[0])}};
}
Codes<4> beside(const Codes<2>& a, const Codes<2>& b) {
  const auto zip = [&](int i, auto half) {
    return vreinterpretq_u8_u16(half(vreinterpretq_u16_u8(a.v[i]), vreinterpretq_u16_u8(b.v[i])));
  };
  const auto first = [](uint16x8_t x, uint16x8_t y) { return vzip1q_u16(x, y); };
  const auto second = [](uint16x8_t x, uint16x8_t y) { return vzip2q_u16(x, y); };
  return {{zip(0, first), zip(0, second), zip(1, first), zip(1, second)}};
}

template <int held, bool in_order>
void spread_as(const SpreadArgs& a) {
  const char* const codes = static_cast<const char*>(a.codes);
  char* const out = static_cast<char*>(a.out);
  Codes<held> from{};
  if constexpr (!in_order) from = places<held>(a.lanes);
  if constexpr (held == 4) {
    for (std::int64_t u = 0; u < a.units; ++u) {
      for (std::int64_t p = 0; p < a.pixels; ++p)
        put(codes_at<held, in_order>(codes + p * a.pixel_bytes, from), out + (p * a.units + u) * 64);
      for (uint8x16_t& place : from.v) place = vaddq_u8(place, vdupq_n_u8(held));
    }
  } else {
    // Backwards: the codes of the pixels behind are there already.
    for (std::int64_t rest = 0; rest < a.step && rest < a.pixels; ++rest) {
      std::int64_t p = (a.pixels - 1 - rest) / a.step * a.step + rest;
      Codes<held> next{};
      if constexpr (held == 2) {
        for (; p >= 0; p -= a.step) {
          const Codes<held> here = codes_at<held, in_order>(codes + p * a.pixel_bytes, from);
          put(beside(here, next), out + p * 64);
          next = here;
        }
      } else {
        Codes<2> two{}, next_two{};  // of the pixels two further, and one
        for (; p >= 0; p -= a.step) {
          const Codes<held> here = codes_at<held, in_order>(codes + p * a.pixel_bytes, from);
          const Codes<2> both = beside(here, next);
          put(beside(both, two), out + p * 64);
          two = next_two;
          next_two = both;
          next = here;
        }
      }
    }
  }
}

}  // namespace

void spread(const SpreadArgs& a) {
  const bool in_order = a.lanes == nullptr;
  switch (a.held) {
    case 1: return in_order ? spread_as<1, true>(a) : spread_as<1, false>(a);
    case 2: return in_order ? spread_as<2, true>(a) : spread_as<2, false>(a);
    default: return in_order ? spread_as<4, true>(a) : spread_as<4, false>(a);
  }
}

}  // namespace bie::kernels::cpu::neon
