#include "formats/group_blocks.h"

#include <algorithm>
#include <cmath>

#include "bie/formats/error.h"
#include "bie/formats/group_grid.h"
#include "bie/formats/group_types.h"
#include "formats/group_search.h"

namespace bie::formats {
namespace {

using Byte = std::uint8_t;

void put_number(int value, Byte* to) {
  to[0] = static_cast<Byte>(value);
  to[1] = static_cast<Byte>(value >> 8);
}

}  // namespace

int whole_zero_at(const Byte* block) { return block[2] | block[3] << 8; }

void open_groups(const GgufType& type, const Byte* blocks, std::int64_t columns, Byte* codes, float* scales,
                 float* zeros) {
  const bool is_whole = zero_of(type) == GroupZero::whole;
  const unsigned mask = (1U << type.bits) - 1;
  for (std::int64_t c = 0; c < columns; c += type.group, blocks += type.bytes, codes += type.group) {
    *scales = half_at(blocks);
    *zeros++ = is_whole ? *scales * static_cast<float>(whole_zero_at(blocks)) : half_at(blocks + 2);
    ++scales;
    const Byte* const from = blocks + group_head_bytes;
    for (std::int64_t i = 0, bit = 0; i < type.group; ++i, bit += type.bits) {
      unsigned pair = from[bit / 8];
      if (bit % 8 + type.bits > 8) pair |= static_cast<unsigned>(from[bit / 8 + 1]) << 8;
      codes[i] = static_cast<Byte>(pair >> (bit % 8) & mask);
    }
  }
}

void put_group_codes(const GgufType& type, const Byte* codes, Byte* block) {
  Byte* const to = block + group_head_bytes;
  std::fill_n(to, type.bytes - group_head_bytes, Byte{0});
  for (std::int64_t i = 0, bit = 0; i < type.group; ++i, bit += type.bits) {
    const unsigned pair = static_cast<unsigned>(codes[i]) << (bit % 8);
    to[bit / 8] = static_cast<Byte>(to[bit / 8] | pair);
    if (bit % 8 + type.bits > 8) to[bit / 8 + 1] = static_cast<Byte>(pair >> 8);
  }
}

void round_group(const std::string& what, const GgufType& type, const float* x, const float* weights, Byte* block) {
  const bool is_whole = zero_of(type) == GroupZero::whole;
  const GroupGrids grids{type.bits, is_whole, GroupNumbers::f16};
  const GroupGrid grid = group_grid(grids, x, type.group, weights);
  if (!std::isfinite(grid.scale) || !std::isfinite(grid.offset))
    throw Error(joined(what, ": a group's scale or offset is beyond 16-bit floats"));
  Byte codes[most_group];
  nearest_codes(grids, grid, x, type.group, codes);
  put_half(grid.scale, block);
  if (is_whole)
    put_number(grid.whole, block + 2);
  else
    put_half(grid.offset, block + 2);
  put_group_codes(type, codes, block);
}

}  // namespace bie::formats
