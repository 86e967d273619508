#include "kernels/cpu/panels.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/arithmetic/float_bits.h"

namespace bie::kernels::cpu {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// The codes of one tap of a checkpoint row, one each `taps`: 0 or 1 for bits, signed otherwise.
void read_codes(const std::uint8_t* row, Dtype code, std::int64_t channels, std::int64_t taps, std::int64_t tap,
                std::int8_t* codes) {
  const auto read = [&](const auto& code_at) {
    for (std::int64_t c = 0; c < channels; ++c) codes[c] = static_cast<std::int8_t>(code_at(c * taps + tap));
  };
  const auto extended = [](int nibble) { return static_cast<std::int8_t>((nibble ^ 8) - 8); };
  if (code == Dtype::bits) {
    read([row](std::int64_t i) { return (row[i / 8] >> (i % 8)) & 1; });
  } else if (code == Dtype::s8 && taps == 1) {
    std::copy_n(reinterpret_cast<const std::int8_t*>(row), channels, codes);  // of none where row may be null
  } else if (code == Dtype::s8) {
    read([row](std::int64_t i) { return static_cast<std::int8_t>(row[i]); });
  } else if (taps == 1) {
    for (std::int64_t i = 0; i < channels / 2; ++i) {
      codes[2 * i] = extended(row[i] >> 4);
      codes[2 * i + 1] = extended(row[i] & 15);
    }
    if (channels % 2 != 0) codes[channels - 1] = extended(row[channels / 2] >> 4);
  } else {
    read([&](std::int64_t i) { return extended(i % 2 == 0 ? row[i / 2] >> 4 : row[i / 2] & 15); });
  }
}

/// Sum of codes; `count` must be small enough for a product in int32.
std::int32_t sum_of(const std::int8_t* codes, std::int64_t count) {
  std::int32_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += codes[i];
  return sum;
}

/// The units of a row of bits that has one tap: its words as they are, without what may stand behind the last bit.
void copy_words(const std::uint8_t* row, std::int64_t channels, std::int64_t stride, std::uint8_t* unit) {
  for (std::int64_t c = 0; c < channels; c += 32, unit += stride) {
    const std::int64_t bits = std::min<std::int64_t>(32, channels - c);
    std::uint32_t word = 0;
    std::memcpy(&word, row + c / 8, static_cast<std::size_t>((bits + 7) / 8));
    if (bits < 32) word &= (1u << bits) - 1;
    std::memcpy(unit, &word, 4);
  }
}

/// Weight units, `stride` bytes apart, from their codes. Unit has the size of one.
template <class Unit>
void write_units(const std::int8_t* codes, Dtype code, int unit_codes, std::int64_t count, std::int64_t stride,
                 std::uint8_t* out) {
  const auto load = [](const std::int8_t* from) {
    Unit unit;
    std::memcpy(&unit, from, sizeof unit);
    return unit;
  };
  const auto write = [&](const auto& unit_of) {
    for (std::int64_t u = 0; u < count; ++u, codes += unit_codes, out += stride) {
      const Unit unit = unit_of(codes);
      std::memcpy(out, &unit, sizeof unit);
    }
  };
  constexpr Unit low = static_cast<Unit>(0x0f0f0f0f0f0f0f0f);
  if (code == Dtype::bits)
    write([](const std::int8_t* signs) {
      std::uint32_t word = 0;
      for (int i = 0; i < 32; ++i) word |= static_cast<std::uint32_t>(signs[i]) << i;
      return static_cast<Unit>(word);
    });
  else if (code == Dtype::s8)
    write(load);
  else  // the first half of a unit's codes in the low nibbles
    write([&](const std::int8_t* nibbles) {
      return static_cast<Unit>((load(nibbles) & low) | (load(nibbles + sizeof(Unit)) & low) << 4);
    });
}

/// Units of a tap whose activation codes are whole words.
std::int64_t units_of_word(const Tile& tile) {
  return tile.code == Code::bits ? 1 : std::max<std::int64_t>(1, 4 / code_size(tile.code, tile.unit_codes));
}

int start_value(Code code, std::int64_t depth, std::int64_t weight_sum) {
  // Unsigned wrap-around is meant: the sums are modulo 2^32 and the final one fits.
  if (code == Code::bits) return static_cast<int>(depth);
  return static_cast<int>(static_cast<std::uint32_t>(-zero_code(code)) * static_cast<std::uint32_t>(weight_sum));
}

}  // namespace

PanelLayout::PanelLayout(const Tile& tile, std::int64_t outputs, std::int64_t channels, std::int64_t taps,
                         std::int64_t joined, bool tap_sums)
    : units(round_up((joined * channels + tile.unit_codes - 1) / tile.unit_codes, units_of_word(tile))),
      panels((outputs + tile.nr - 1) / tile.nr),
      panel_bytes(round_up(tile.nr * (4 + taps / joined * units * tile.unit_bytes + (tap_sums ? 4 * taps : 0)), 64)),
      code_bytes(code_size(tile.code, units * tile.unit_codes)),
      sums_offset(tap_sums ? tile.nr * (4 + taps / joined * units * tile.unit_bytes) : 0) {}

int zero_code(Code code) {
  switch (code) {
    case Code::u8_s8: return 128;
    case Code::u8_s4: return 8;
    case Code::u8_b1: return 1;
    default: return 0;
  }
}

std::uint32_t outside_of(Code code, int outside) {
  if (code == Code::f32_b1) return bits_from_float(static_cast<float>(outside));
  return static_cast<std::uint32_t>(zero_code(code) + (code == Code::bits ? 0 : outside)) * 0x01010101u;
}

std::int64_t code_size(Code code, std::int64_t count) {
  switch (code) {
    case Code::bits: return (count + 7) / 8;
    case Code::s16_s8: return 2 * count;
    case Code::f32:
    case Code::f32_b1: return 4 * count;
    default: return count;
  }
}

void pack_panels(const Tile& tile, const Width& width, const void* weight, std::int64_t outputs, std::int64_t channels,
                 std::int64_t taps, std::int64_t joined, bool tap_sums, void* packed, const Parallel& parallel) {
  constexpr std::int64_t block = 32;  // units of all outputs, written together because they lie side by side
  const PanelLayout layout(tile, outputs, channels, taps, joined, tap_sums);
  const std::int64_t depth = channels * taps, row_size = row_bytes(width.code, depth);
  const std::int64_t padded = layout.units * tile.unit_codes, stride = tile.nr * tile.unit_bytes;
  const bool words = width.code == Dtype::bits && taps == 1 && !tap_sums;
  parallel_for(parallel, layout.panels, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int8_t> codes(static_cast<std::size_t>(words ? 0 : tile.nr * padded));  // of joined taps
    std::vector<std::int64_t> sums(static_cast<std::size_t>(tile.nr));                       // of the codes
    for (std::int64_t p = begin; p < end; ++p) {
      std::uint8_t* const panel = static_cast<std::uint8_t*>(packed) + p * layout.panel_bytes;
      std::memset(panel, 0, static_cast<std::size_t>(layout.panel_bytes));
      const std::int64_t columns = std::min<std::int64_t>(tile.nr, outputs - p * tile.nr);
      const auto row = [&](std::int64_t column) {
        return static_cast<const std::uint8_t*>(weight) + (p * tile.nr + column) * row_size;
      };
      std::uint8_t* const units = panel + tile.nr * 4;
      std::fill(sums.begin(), sums.end(), 0);
      for (std::int64_t column = 0; column < columns && words; ++column)
        copy_words(row(column), channels, stride, units + column * tile.unit_bytes);
      for (std::int64_t run = 0; run < taps / joined && !words; ++run) {
        for (std::int64_t column = 0; column < columns; ++column) {
          std::int8_t* own = codes.data() + column * padded;
          for (std::int64_t tap = run * joined; tap < (run + 1) * joined; ++tap, own += channels) {
            read_codes(row(column), width.code, channels, taps, tap, own);
            const std::int32_t tap_sum = sum_of(own, channels);
            sums[static_cast<std::size_t>(column)] += tap_sum;
            if (!tap_sums) continue;
            const std::int32_t signs = static_cast<std::int32_t>(2 * tap_sum - channels);
            std::memcpy(panel + layout.sums_offset + (tap * tile.nr + column) * 4, &signs, 4);
          }
        }
        for (std::int64_t first = 0; first < layout.units; first += block)
          for (std::int64_t column = 0; column < columns; ++column) {
            const std::int64_t last = std::min(layout.units, first + block);
            std::uint8_t* const unit = units + (run * layout.units + first) * stride + column * tile.unit_bytes;
            const auto& writer = tile.unit_bytes == 8   ? write_units<std::uint64_t>
                                 : tile.unit_bytes == 4 ? write_units<std::uint32_t>
                                 : tile.unit_bytes == 2 ? write_units<std::uint16_t>
                                                        : write_units<std::uint8_t>;
            writer(codes.data() + column * padded + first * tile.unit_codes, width.code, tile.unit_codes, last - first,
                   stride, unit);
          }
      }
      for (std::int64_t column = 0; column < columns; ++column) {
        const std::int32_t start = start_value(tile.code, depth, sums[static_cast<std::size_t>(column)]);
        std::memcpy(panel + column * 4, &start, 4);
      }
    }
  });
}

void prefetch_output(const char* out, std::int64_t rows, std::int64_t row_stride, std::int64_t row_bytes) {
  for (std::int64_t row = 0; row < rows; ++row, out += row_stride)
    for (std::int64_t at = 0; at < row_bytes; at += 64) __builtin_prefetch(out + at, 1);
}

void* workspace(std::size_t bytes, Buffer purpose) {
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  struct Held {
    std::unique_ptr<void, Free> memory;
    std::size_t capacity = 0;
  };
  thread_local Held all[3];
  Held& held = all[static_cast<int>(purpose)];
  if (bytes > held.capacity) {
    held.memory.reset();
    held.capacity = 0;
    const std::size_t rounded = (bytes + 4095) / 4096 * 4096;
    held.memory.reset(std::aligned_alloc(64, rounded));
    if (held.memory != nullptr) held.capacity = rounded;
  }
  return held.memory.get();
}

}  // namespace bie::kernels::cpu
