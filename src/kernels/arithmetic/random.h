// Random numbers as a function of their place, so that any thread of any device can make any of them. Everything is
// constexpr, which is what lets CUDA kernels call it too.
#pragma once

#include <cstdint>

namespace bie::kernels {

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every bit of the input moves every bit of the output.
static constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;

/// 64 random bits per element, of the stream that starts here.
static constexpr std::uint64_t random_bits(std::uint64_t start, std::int64_t element) {
  return mix(start + static_cast<std::uint64_t>(element) * golden);
}

/// A sequence of random bits with a start of its own.
class Stream {
 public:
  constexpr explicit Stream(std::uint64_t start) : start_(start) {}
  constexpr Stream(std::uint64_t seed, std::uint64_t parameter, std::uint64_t step)
      : start_(mix(mix(mix(seed + golden) + parameter * golden) + step * golden)) {}
  constexpr std::uint64_t start() const { return start_; }
  constexpr std::uint64_t bits(std::int64_t element) const { return random_bits(start_, element); }

 private:
  std::uint64_t start_;
};

/// A number in [0, 1), from 24 of the bits.
static constexpr float uniform(std::uint64_t bits) { return static_cast<float>(bits >> 40) * 0x1p-24f; }

}  // namespace bie::kernels
