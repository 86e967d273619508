// The scale and the zero of a group of codes. Source: docs/spec/files.md#groups.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bie::formats {

/// The numbers in which scales and zeros are kept.
enum class GroupNumbers : std::uint8_t { f16, bf16, f32 };

/// The grids of all groups of a matrix share this.
struct GroupGrids {
  int bits;       ///< per code, 1 to 8
  bool is_whole;  ///< W = s * (q - z) with a whole z from 1 to 2^bits; W = s * q - z if not
  GroupNumbers numbers;
};

/// Codes q of a group stand for scale * q - offset.
struct GroupGrid {
  float scale = 0, offset = 0;
  int whole = 1;  ///< of whole zeros: offset = scale * whole
};

/// Weights of the squared errors of columns in a search: numbers above 0 with a mean of 1. Empty where importance is
/// null or all 0.
/// @throws Error beginning with `what` for NaN, infinity and numbers below 0.
std::vector<float> error_weights(const std::string& what, const float* importance, std::int64_t columns);

/// The grid for the numbers x [count] of a group, which may be infinite where numbers are 16-bit floats.
/// @param weights  of squared errors, above 0, for a search; null: from the least number to the largest.
GroupGrid group_grid(const GroupGrids& grids, const float* x, std::int64_t count, const float* weights);

/// The nearest codes [count].
void nearest_codes(const GroupGrids& grids, const GroupGrid& grid, const float* x, std::int64_t count,
                   std::uint8_t* codes);

}  // namespace bie::formats
