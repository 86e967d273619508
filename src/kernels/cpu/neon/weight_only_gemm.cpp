// The tile of weight-only products: one row x 64 outputs from registers, or up to 24 rows x 64 outputs, for which the
// codes of a part of a group are opened into memory once.
//
// Less their middle codes of 2 and 4 bits are floats whose lower half is zero, so two tables of bytes open sixteen of
// them. Under the exponent of 2^23 a code of 8 bits is a float whose last bits it is, and one subtraction makes it
// exact.
#include <arm_neon.h>

#include <cstdint>

#include "kernels/cpu/weight_only/weight_only_rows.h"

namespace bie::kernels::cpu::neon {
namespace {

#define BIE_INLINE [[gnu::always_inline]] inline

// Openers dequantize the codes of a line: they call use(r, v, lanes, floats) with row r and outputs 16 v + 4 lanes ...,
// less their middle, in ascending r.

/// The third and fourth bytes of float(code) - 2^(width - 1), of a code at bit 0 and of one that starts at bit `width`.
template <int width>
struct Bytes {
  std::uint8_t upper[16], lower[16];
  constexpr Bytes() : upper{}, lower{} {
    for (int i = 0; i < 16; ++i) {
      int code = i;
      while (code >> width != 0) code >>= width;
      const int value = code - (1 << (width - 1)), size = value < 0 ? -value : value;
      int exponent = 0;
      while (size >> (exponent + 1) != 0) ++exponent;
      const int half = size == 0 ? 0 : (127 + exponent) << 7 | ((size << (7 - exponent)) & 0x7f);
      upper[i] = static_cast<std::uint8_t>(half >> 8 | (value < 0 ? 0x80 : 0));
      lower[i] = static_cast<std::uint8_t>(half);
    }
  }
};
template <int width>
constexpr Bytes<width> bytes;

/// 2 or 4 bits.
template <int width>
struct Opening {
  uint8x16_t upper, lower;

  BIE_INLINE Opening() : upper(vld1q_u8(bytes<width>.upper)), lower(vld1q_u8(bytes<width>.lower)) {}
  template <class Use>
  BIE_INLINE void operator()(const char* at, const Use& use) const {
#pragma GCC unroll 4
    for (int lanes = 0; lanes < 4; ++lanes) open_lanes(at + 16 * lanes, lanes, use);
  }

 private:
  template <class Use>
  BIE_INLINE void open_lanes(const char* at, int lanes, const Use& use) const {
    constexpr int fields = 8 / width;  // per byte
    const uint8x16_t line = vld1q_u8(reinterpret_cast<const std::uint8_t*>(at)), high = vshrq_n_u8(line, 4);
    uint8x16_t uppers[fields], lowers[fields];
#pragma GCC unroll 4
    for (int f = 0; f < fields; ++f) {
      const std::uint8_t mask = static_cast<std::uint8_t>(((1 << width) - 1) << f * width % 4);
      const uint8x16_t nibble = f * width < 4 ? line : high;
      const uint8x16_t code = width == 4 && f == 1 ? nibble : vandq_u8(nibble, vdupq_n_u8(mask));
      uppers[f] = vqtbl1q_u8(upper, code);
      lowers[f] = vqtbl1q_u8(lower, code);
    }
#pragma GCC unroll 2
    for (int byte = 0; byte < 2; ++byte)
#pragma GCC unroll 4
      for (int f = 0; f < fields; ++f) {
        const uint32x4_t both =
            vreinterpretq_u32_u8(byte == 0 ? vtrn1q_u8(lowers[f], uppers[f]) : vtrn2q_u8(lowers[f], uppers[f]));
        const int r = (byte * fields + f) / 2, v = f % 2;
        use(r, v, lanes, vreinterpretq_f32_u32(vshlq_n_u32(both, 16)));
        use(r, v + 2, lanes, vreinterpretq_f32_u32(vandq_u32(both, vdupq_n_u32(0xffff0000))));
      }
  }
};

/// -1 or 0.
template <>
struct Opening<1> {
  template <class Use>
  BIE_INLINE void operator()(const char* at, const Use& use) const {
    const uint32x4_t minus_one = vreinterpretq_u32_f32(vdupq_n_f32(-1));
    uint32x4_t line[4], low = vdupq_n_u32(1), high = vdupq_n_u32(1 << 16);
#pragma GCC unroll 4
    for (int lanes = 0; lanes < 4; ++lanes)
      line[lanes] = vld1q_u32(reinterpret_cast<const std::uint32_t*>(at) + 4 * lanes);
#pragma GCC unroll 16
    for (int field = 0; field < 16; ++field) {
#pragma GCC unroll 4
      for (int lanes = 0; lanes < 4; ++lanes) {
        const int r = field / 2, v = field % 2;
        use(r, v, lanes, vreinterpretq_f32_u32(vbicq_u32(minus_one, vtstq_u32(line[lanes], low))));
        use(r, v + 2, lanes, vreinterpretq_f32_u32(vbicq_u32(minus_one, vtstq_u32(line[lanes], high))));
      }
      low = vaddq_u32(low, low);
      high = vaddq_u32(high, high);
    }
  }
};

template <>
struct Opening<8> {
  template <class Use>
  BIE_INLINE void operator()(const char* at, const Use& use) const {
    const uint8x16_t zero = vdupq_n_u8(0);
    const uint16x8_t exponent = vdupq_n_u16(0x4b00);
    const float32x4_t middle = vdupq_n_f32(0x1p23f + 128);
#pragma GCC unroll 4
    for (int lanes = 0; lanes < 4; ++lanes) {
      const uint8x16_t line = vld1q_u8(reinterpret_cast<const std::uint8_t*>(at) + 16 * lanes);
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) {
        const uint16x8_t both = vreinterpretq_u16_u8(v == 0 ? vtrn1q_u8(line, zero) : vtrn2q_u8(line, zero));
        use(0, v, lanes, vsubq_f32(vreinterpretq_f32_u16(vtrn1q_u16(both, exponent)), middle));
        use(0, v + 2, lanes, vsubq_f32(vreinterpretq_f32_u16(vtrn2q_u16(both, exponent)), middle));
      }
    }
  }
};

// One row.

/// The rows of a line.
template <int width>
BIE_INLINE void add_line(const char* at, const float* x, const Opening<width>& open, float32x4_t (&sum)[4][4]) {
  open(at,
       [&](int r, int v, int lanes, float32x4_t codes) { sum[v][lanes] = vfmaq_n_f32(sum[v][lanes], codes, x[r]); });
}

/// The sums of one group into sum [64].
template <int width>
[[gnu::noinline]] void add_group(const char* at, const float* x, std::int32_t rows, float* to) {
  constexpr int per_line = 8 / width;
  const Opening<width> open;
  float32x4_t sum[4][4];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v)
#pragma GCC unroll 4
    for (int lanes = 0; lanes < 4; ++lanes) sum[v][lanes] = vdupq_n_f32(0);
  for (; rows >= per_line; rows -= per_line, at += 64, x += per_line) add_line<width>(at, x, open, sum);
  if (rows > 0) {
    float last[per_line] = {};  // no sum is -0, so products with 0 change none
    for (int i = 0; i < rows; ++i) last[i] = x[i];
    add_line<width>(at, last, open, sum);
  }
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v)
#pragma GCC unroll 4
    for (int lanes = 0; lanes < 4; ++lanes) vst1q_f32(to + 16 * v + 4 * lanes, sum[v][lanes]);
}

// Several rows.

/// `rows` rows of codes, less their middle, into [rows][64], and the rest of the last line.
template <int width>
[[gnu::noinline]] void open_rows(const char* at, int rows, float* to) {
  constexpr int per_line = 8 / width;
  const Opening<width> open;
  for (; rows > 0; rows -= per_line, at += 64, to += per_line * panel_columns)
    open(at, [&](int r, int v, int lanes, float32x4_t codes) {
      vst1q_f32(to + r * panel_columns + 16 * v + 4 * lanes, codes);
    });
}

/// sum [R][64] += x [count][stride] times codes [count][64].
template <int R>
[[gnu::noinline]] void multiply(const float* codes, const float* x, int stride, int count, float* sums) {
  for (int column = 0; column < panel_columns; column += 16) {
    float32x4_t sum[R][4];
    float* const to = sums + column;
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) sum[i][v] = vld1q_f32(to + i * panel_columns + 4 * v);
    const float *w = codes + column, *row = x;
    for (int t = 0; t < count; ++t, w += panel_columns, row += stride) {
      float32x4_t wi[4];
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) wi[v] = vld1q_f32(w + 4 * v);
#pragma GCC unroll 6
      for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) sum[i][v] = vfmaq_n_f32(sum[i][v], wi[v], row[i]);
    }
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) vst1q_f32(to + i * panel_columns + 4 * v, sum[i][v]);
  }
}

float32x4_t load_floats(const char* at, Dtype dtype, int first) {
  if (dtype == Dtype::f32) return vld1q_f32(reinterpret_cast<const float*>(at) + first);
  const uint16x4_t halves = vld1_u16(reinterpret_cast<const std::uint16_t*>(at) + first);
  if (dtype == Dtype::f16) return vcvt_f32_f16(vreinterpret_f16_u16(halves));
  return vreinterpretq_f32_u32(vshll_n_u16(halves, 16));
}

/// Adds one group's contribution to the outputs.
void end_group(const WeightOnlyArgs& a, const WeightGroup& group, const char* numbers, const float* sums,
               const float* sum) {
  const char* const zeros = numbers + row_bytes(a.scale, panel_columns);
  for (int j = 0; j < panel_columns; j += 4) {
    const float32x4_t scale = load_floats(numbers, a.scale, j);
    float32x4_t offset = vdupq_n_f32(0);
    if (a.offset == Offset::value) {
      offset = vfmaq_n_f32(vnegq_f32(load_floats(zeros, a.scale, j)), scale, group.middle);
    } else if (a.offset == Offset::zero) {
      float z[4];
      for (int i = 0; i < 4; ++i) z[i] = group.middle - 1 - static_cast<float>(static_cast<std::uint8_t>(zeros[j + i]));
      offset = vmulq_f32(scale, vld1q_f32(z));
    }
    for (int i = 0; i < a.rows; ++i) {
      float* const to = a.y + i * a.y_stride + j;
      float32x4_t all = vfmaq_f32(vld1q_f32(to), vld1q_f32(sum + i * panel_columns + j), scale);
      if (a.offset != Offset::none) all = vfmaq_n_f32(all, offset, sums[i]);
      vst1q_f32(to, all);
    }
  }
}

struct Loops {
  template <int R>
  static constexpr auto multiply = neon::multiply<R>;
  template <int width>
  static constexpr auto open_rows = neon::open_rows<width>;
  template <int width>
  static constexpr auto add_group = neon::add_group<width>;
  static constexpr auto end_group = neon::end_group;
};

}  // namespace

const WeightOnlyTile weight_only_tile = {WeightOnlyRows::most, 1, run_weight_only_rows<Loops>};

}  // namespace bie::kernels::cpu::neon
