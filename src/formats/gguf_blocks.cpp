// GGUF's types: sizes of blocks, and where a block keeps its codes, scales and offsets.
// Source: ggml-common.h and dequantize_row_* of ggml's ggml-quants.c.
#include "formats/gguf_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "bie/formats/error.h"
#include "bie/formats/group_types.h"
#include "formats/group_blocks.h"
#include "formats/half.h"

namespace bie::formats {
namespace {

using Byte = std::uint8_t;

// Eight bytes at a time, so that every compiler makes vectors of these loops.

constexpr std::uint64_t in_each(Byte b) { return b * std::uint64_t{0x0101010101010101}; }

/// Shifts each byte down and keeps the bits of `mask`.
template <int count>
void take(const Byte* from, int down, Byte mask, Byte* codes) {
  for (int i = 0; i < count; i += 8) {
    std::uint64_t eight;
    std::memcpy(&eight, from + i, 8);
    eight = eight >> down & in_each(mask);
    std::memcpy(codes + i, &eight, 8);
  }
}

/// Puts those bits, `up` places higher, into codes.
template <int count>
void put_above(const Byte* from, int down, Byte mask, int up, Byte* codes) {
  for (int i = 0; i < count; i += 8) {
    std::uint64_t eight, below;
    std::memcpy(&eight, from + i, 8);
    std::memcpy(&below, codes + i, 8);
    below |= (eight >> down & in_each(mask)) << up;
    std::memcpy(codes + i, &below, 8);
  }
}

/// The bits of a byte in eight bytes, the lowest first.
std::uint64_t bits_apart(Byte bits) {
  std::uint64_t x = bits;
  x = (x | x << 28) & 0x0000000f0000000f;
  x = (x | x << 14) & 0x0003000300030003;
  return (x | x << 7) & in_each(1);
}

/// The pairs of bits of a byte in four bytes, the lowest first.
std::uint32_t pairs_apart(Byte bits) {
  std::uint32_t x = bits;
  x = (x | x << 12) & 0x000f000f;
  return (x | x << 6) & 0x03030303;
}

/// 32 nibbles: the low ones of 16 bytes, then the high ones.
void nibbles(const Byte* q, Byte* codes) {
  take<16>(q, 0, 15, codes);
  take<16>(q, 4, 15, codes + 16);
}

/// As above with a fifth bit from 4 bytes.
void five_bits(const Byte* high, const Byte* q, Byte* codes) {
  nibbles(q, codes);
  for (int i = 0; i < 4; ++i) {
    std::uint64_t eight;
    std::memcpy(&eight, codes + 8 * i, 8);
    eight |= bits_apart(high[i]) << 4;
    std::memcpy(codes + 8 * i, &eight, 8);
  }
}

/// 256 codes of 2 bits: of each 32 bytes the lowest bits, then the next ones.
void two_bits(const Byte* q, Byte* codes) {
  for (int i = 0; i < 8; ++i) take<32>(q + i / 4 * 32, i % 4 * 2, 3, codes + 32 * i);
}

/// 256 codes of 4 bits: of each 32 bytes the low nibbles, then the high ones.
void four_bits(const Byte* q, Byte* codes) {
  for (int i = 0; i < 8; ++i) take<32>(q + i / 2 * 32, i % 2 * 4, 15, codes + 32 * i);
}

void open_q4_0(const Byte* b, Byte* codes, float* s, float* /*z*/) {
  s[0] = half_at(b);
  nibbles(b + 2, codes);
}

void open_q4_1(const Byte* b, Byte* codes, float* s, float* z) {
  s[0] = half_at(b);
  z[0] = -half_at(b + 2);
  nibbles(b + 4, codes);
}

void open_q5_0(const Byte* b, Byte* codes, float* s, float* /*z*/) {
  s[0] = half_at(b);
  five_bits(b + 2, b + 6, codes);
}

void open_q5_1(const Byte* b, Byte* codes, float* s, float* z) {
  s[0] = half_at(b);
  z[0] = -half_at(b + 2);
  five_bits(b + 4, b + 8, codes);
}

void open_q8_0(const Byte* b, Byte* codes, float* s, float* /*z*/) {
  s[0] = half_at(b);
  for (int i = 0; i < 32; ++i) codes[i] = b[2 + i] ^ 0x80;
}

/// Scales and offsets of a block as they are: s = d * (a - 128), z = least * b.
struct Levels {
  float d, least;
  int groups;
  Byte a[16], b[16];
};

void multiply(const Levels& of, float* s, float* z) {
  for (int g = 0; g < of.groups; ++g) {
    s[g] = of.d * static_cast<float>(of.a[g] - 128);
    z[g] = of.least * static_cast<float>(of.b[g]);
  }
}

Levels levels_q2_k(const Byte* b) {
  Levels of{half_at(b + 80), half_at(b + 82), 16, {}, {}};
  for (int g = 0; g < 16; ++g) {
    of.a[g] = static_cast<Byte>(128 + (b[g] & 15));
    of.b[g] = b[g] >> 4;
  }
  return of;
}

void open_q2_k(const Byte* b, Byte* codes, float* s, float* z) {
  multiply(levels_q2_k(b), s, z);
  two_bits(b + 16, codes);
}

Levels levels_q3_k(const Byte* b) {
  const Byte* const packed = b + 96;
  Levels of{half_at(b + 108), 0, 16, {}, {}};
  for (int g = 0; g < 16; ++g) {
    const int low = packed[g % 8] >> (g / 8 * 4) & 15, top = packed[8 + g % 4] >> (g / 4 * 2) & 3;
    of.a[g] = static_cast<Byte>(128 + (low | top << 4) - 32);
  }
  return of;
}

void open_q3_k(const Byte* b, Byte* codes, float* s, float* z) {
  multiply(levels_q3_k(b), s, z);
  two_bits(b + 32, codes);
  for (int i = 0; i < 8; ++i) put_above<32>(b, i, 1, 2, codes + 32 * i);
}

/// Eight scales and eight offsets of 6 bits in 12 bytes.
Levels levels_of_pairs(const Byte* b) {
  const Byte* const p = b + 4;
  Levels of{half_at(b), half_at(b + 2), 8, {}, {}};
  for (int g = 0; g < 8; ++g) {
    of.a[g] = static_cast<Byte>(128 + (g < 4 ? p[g] & 63 : (p[g + 4] & 15) | p[g - 4] >> 6 << 4));
    of.b[g] = static_cast<Byte>(g < 4 ? p[g + 4] & 63 : p[g + 4] >> 4 | p[g] >> 6 << 4);
  }
  return of;
}

void open_q4_k(const Byte* b, Byte* codes, float* s, float* z) {
  multiply(levels_of_pairs(b), s, z);
  four_bits(b + 16, codes);
}

void open_q5_k(const Byte* b, Byte* codes, float* s, float* z) {
  multiply(levels_of_pairs(b), s, z);
  four_bits(b + 48, codes);
  for (int i = 0; i < 8; ++i) put_above<32>(b + 16, i, 1, 4, codes + 32 * i);
}

Levels levels_q6_k(const Byte* b) {
  Levels of{half_at(b + 208), 0, 16, {}, {}};
  for (int g = 0; g < 16; ++g) of.a[g] = b[192 + g] ^ 0x80;
  return of;
}

void open_q6_k(const Byte* b, Byte* codes, float* s, float* z) {
  const Byte *const low = b, *const high = b + 128;
  multiply(levels_q6_k(b), s, z);
  for (int i = 0; i < 4; ++i) take<64>(low + i / 2 * 64, i % 2 * 4, 15, codes + 64 * i);
  for (int i = 0; i < 8; ++i) put_above<32>(high + i / 4 * 32, i % 4 * 2, 3, 4, codes + 32 * i);
}

/// Five digits of base 3 per byte, as a fraction of 256: the first is the integer part of three times that.
void open_tq1_0(const Byte* b, Byte* codes, float* s, float* /*z*/) {
  s[0] = half_at(b + 52);
  const auto digits = [&](const Byte* q, int bytes, int count) {
    int power = 1;
    for (int k = 0; k < count; ++k, power *= 3)
      for (int i = 0; i < bytes; ++i) *codes++ = static_cast<Byte>(static_cast<Byte>(q[i] * power) * 3 >> 8);
  };
  digits(b, 32, 5);
  digits(b + 32, 16, 5);
  digits(b + 48, 4, 4);
}

void open_tq2_0(const Byte* b, Byte* codes, float* s, float* /*z*/) {
  s[0] = half_at(b + 64);
  two_bits(b, codes);
}

void open_q1_0(const Byte* b, Byte* codes, float* s, float* z) {
  z[0] = half_at(b);
  s[0] = 2 * z[0];
  for (int i = 0; i < 16; ++i) {
    const std::uint64_t eight = bits_apart(b[2 + i]);
    std::memcpy(codes + 8 * i, &eight, 8);
  }
}

template <int weights>
void open_q2_0(const Byte* b, Byte* codes, float* s, float* /*z*/) {
  s[0] = half_at(b);
  for (int i = 0; i < weights / 4; ++i) {
    const std::uint32_t four = pairs_apart(b[2 + i]);
    std::memcpy(codes + 4 * i, &four, 4);
  }
}

constexpr std::int8_t iq4_grid[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

void on_iq4_grid(Byte* codes, int count) {
  for (int i = 0; i < count; ++i) codes[i] = static_cast<Byte>(iq4_grid[codes[i]] + 128);
}

void open_iq4_nl(const Byte* b, Byte* codes, float* s, float* /*z*/) {
  s[0] = half_at(b);
  nibbles(b + 2, codes);
  on_iq4_grid(codes, 32);
}

Levels levels_iq4_xs(const Byte* b) {
  const int high = b[2] | b[3] << 8;
  Levels of{half_at(b), 0, 8, {}, {}};
  for (int g = 0; g < 8; ++g) {
    const int low = b[4 + g / 2] >> (g % 2 * 4) & 15;
    of.a[g] = static_cast<Byte>(128 + (low | (high >> (2 * g) & 3) << 4) - 32);
  }
  return of;
}

void open_iq4_xs(const Byte* b, Byte* codes, float* s, float* z) {
  multiply(levels_iq4_xs(b), s, z);
  for (int g = 0; g < 8; ++g) nibbles(b + 8 + 16 * g, codes + 32 * g);
  on_iq4_grid(codes, 256);
}

/// A 4-bit float is plus or minus half of 0, 1, 2, 3, 4, 6, 8 or 12. The code is that whole number plus 16.
void on_fp4_grid(Byte* codes, int count) {
  for (int i = 0; i < count; ++i) {
    const auto c = static_cast<Byte>(codes[i] & 7);
    const auto size = static_cast<Byte>(c + (c > 4) + (c > 5) + 3 * (c > 6));
    codes[i] = static_cast<Byte>(codes[i] < 8 ? 16 + size : 16 - size);
  }
}

/// Under a power of two, halved.
void open_mxfp4(const Byte* b, Byte* codes, float* s, float* /*z*/) {
  s[0] = std::ldexp(1.0f, b[0] - 128);
  nibbles(b + 1, codes);
  on_fp4_grid(codes, 32);
}

/// Half of an unsigned float of 4 bits of exponent and 3 of mantissa; the last one is no number and stands for 0.
float half_of_ue4m3(Byte byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  if (byte == 0x7f) return 0;
  return exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -10)
                       : std::ldexp(static_cast<float>(8 + mantissa), exponent - 11);
}

void open_nvfp4(const Byte* b, Byte* codes, float* s, float* /*z*/) {
  for (int g = 0; g < 4; ++g) {
    s[g] = half_of_ue4m3(b[g]);
    for (int i = 0; i < 8; ++i) {
      const Byte pair = b[4 + 8 * g + i];
      codes[16 * g + i] = pair & 15;
      codes[16 * g + 8 + i] = pair >> 4;
    }
  }
  on_fp4_grid(codes, 64);
}

struct Row {
  GgufType type;
  OpenBlock open;
  Levels (*levels)(const Byte* block) = nullptr;  ///< of types whose scales are products of two numbers
};

constexpr Row plain(std::uint32_t id, std::string_view name, Element element) {
  return {{id, name, 1, size_of(element), GgufType::Kind::elements, element, 0, 0, 0, Element::f32}, nullptr};
}
constexpr Row coded(std::uint32_t id, std::string_view name, std::int64_t weights, std::int64_t bytes, int bits,
                    std::int64_t group, int zero, Element numbers, OpenBlock open,
                    Levels (*levels)(const Byte*) = nullptr) {
  return {{id, name, weights, bytes, GgufType::Kind::codes, Element::u8, bits, group, zero, numbers, levels != nullptr},
          open,
          levels};
}
constexpr Row other(std::uint32_t id, std::string_view name, std::int64_t weights, std::int64_t bytes) {
  return {{id, name, weights, bytes, GgufType::Kind::other, Element::u8, 0, 0, 0, Element::f32}, nullptr};
}

constexpr Row table[] = {
    plain(0, "F32", Element::f32),
    plain(1, "F16", Element::f16),
    plain(30, "BF16", Element::bf16),
    plain(28, "F64", Element::f64),
    plain(24, "I8", Element::i8),
    plain(25, "I16", Element::i16),
    plain(26, "I32", Element::i32),
    plain(27, "I64", Element::i64),
    coded(2, "Q4_0", 32, 18, 4, 32, 8, Element::f16, open_q4_0),
    coded(3, "Q4_1", 32, 20, 4, 32, 0, Element::f16, open_q4_1),
    coded(6, "Q5_0", 32, 22, 5, 32, 16, Element::f16, open_q5_0),
    coded(7, "Q5_1", 32, 24, 5, 32, 0, Element::f16, open_q5_1),
    coded(8, "Q8_0", 32, 34, 8, 32, 128, Element::f16, open_q8_0),
    coded(10, "Q2_K", 256, 84, 2, 16, 0, Element::f32, open_q2_k, levels_q2_k),
    coded(11, "Q3_K", 256, 110, 3, 16, 4, Element::f32, open_q3_k, levels_q3_k),
    coded(12, "Q4_K", 256, 144, 4, 32, 0, Element::f32, open_q4_k, levels_of_pairs),
    coded(13, "Q5_K", 256, 176, 5, 32, 0, Element::f32, open_q5_k, levels_of_pairs),
    coded(14, "Q6_K", 256, 210, 6, 16, 32, Element::f32, open_q6_k, levels_q6_k),
    coded(34, "TQ1_0", 256, 54, 2, 256, 1, Element::f16, open_tq1_0),
    coded(35, "TQ2_0", 256, 66, 2, 256, 1, Element::f16, open_tq2_0),
    coded(41, "Q1_0", 128, 18, 1, 128, 0, Element::f32, open_q1_0),
    coded(42, "Q2_0", 64, 18, 2, 64, 1, Element::f16, open_q2_0<64>),
    coded(42, "Q2_0_128", 128, 34, 2, 128, 1, Element::f16, open_q2_0<128>),
    coded(20, "IQ4_NL", 32, 18, 8, 32, 128, Element::f16, open_iq4_nl),
    coded(23, "IQ4_XS", 256, 136, 8, 32, 128, Element::f32, open_iq4_xs, levels_iq4_xs),
    coded(39, "MXFP4", 32, 17, 5, 32, 16, Element::bf16, open_mxfp4),
    coded(40, "NVFP4", 64, 36, 5, 16, 16, Element::f16, open_nvfp4),
    other(9, "Q8_1", 32, 36),
    other(15, "Q8_K", 256, 292),
    other(16, "IQ2_XXS", 256, 66),
    other(17, "IQ2_XS", 256, 74),
    other(18, "IQ3_XXS", 256, 98),
    other(19, "IQ1_S", 256, 50),
    other(21, "IQ3_S", 256, 110),
    other(22, "IQ2_S", 256, 82),
    other(29, "IQ1_M", 256, 56),
};

template <class Test>
const Row* find(const Test& test) {
  const auto* found = std::find_if(std::begin(table), std::end(table), test);
  return found == std::end(table) ? nullptr : found;
}

}  // namespace

OpenBlock open_block(const GgufType& type) {
  const Row* row = find([&](const Row& r) { return r.type.name == type.name; });
  return row == nullptr ? nullptr : row->open;
}

const GgufType* gguf_type_of_id(std::uint32_t id) {
  const Row* row = find([id](const Row& r) { return r.type.id == id; });
  return row == nullptr ? nullptr : &row->type;
}

const GgufType* gguf_type(std::string_view name) {
  const Row* row = find([name](const Row& r) { return r.type.name == name; });
  return row == nullptr ? nullptr : &row->type;
}

void gguf_row(const GgufType& type, const std::uint8_t* blocks, std::int64_t columns, std::uint8_t* codes,
              float* scales, float* zeros) {
  if (is_group_type(type)) {
    open_groups(type, blocks, columns, codes, scales, zeros);
    return;
  }
  const OpenBlock open = open_block(type);
  const std::int64_t groups = type.weights / type.group;
  float no_zeros[most_block_weights / 16];
  for (std::int64_t c = 0; c < columns; c += type.weights, blocks += type.bytes, codes += type.weights) {
    open(blocks, codes, scales, type.zero == 0 ? zeros : no_zeros);
    scales += groups;
    if (type.zero == 0) zeros += groups;
  }
}

void gguf_levels(const GgufType& type, const std::uint8_t* blocks, std::int64_t columns, std::uint8_t* a,
                 std::uint8_t* b, float* d, float* least) {
  const Row* const row = find([&](const Row& r) { return r.type.name == type.name; });
  for (std::int64_t c = 0; c < columns; c += type.weights, blocks += type.bytes) {
    const Levels of = row->levels(blocks);
    *d++ = of.d;
    *least++ = of.least;
    a = std::copy_n(of.a, of.groups, a);
    b = std::copy_n(of.b, of.groups, b);
  }
}

CodedRows gguf_codes(const std::string& what, const GgufType& type, const std::uint8_t* blocks, std::int64_t rows,
                     std::int64_t columns) {
  if (open_block(type) == nullptr) throw Error(joined(what, " is ", type.name, ", which is not codes with scales"));
  CodedRows w;
  w.rows = rows;
  w.columns = columns;
  w.bits = type.bits;
  w.group = type.group;
  w.zero = type.zero;
  w.words.resize(static_cast<std::size_t>(rows * w.row_words()));
  w.scales.resize(static_cast<std::size_t>(rows * w.groups()));
  if (type.zero == 0) w.zeros.resize(w.scales.size());
  std::vector<Byte> codes(static_cast<std::size_t>(columns));
  const std::int64_t row_bytes = columns / type.weights * type.bytes, groups = w.groups();
  for (std::int64_t r = 0; r < rows; ++r) {
    float* const scales = w.scales.data() + r * groups;
    float* const zeros = type.zero == 0 ? w.zeros.data() + r * groups : nullptr;
    gguf_row(type, blocks + r * row_bytes, columns, codes.data(), scales, zeros);
    std::uint32_t* const words = w.words.data() + r * w.row_words();
    for (std::int64_t c = 0; c < columns; ++c) put_code(words, type.bits, c, codes[static_cast<std::size_t>(c)]);
    for (std::int64_t g = 0; g < groups; ++g)
      if (!std::isfinite(scales[g]) || (zeros != nullptr && !std::isfinite(zeros[g])))
        throw Error(joined(what, " holds NaN or infinity in a scale of row ", r));
  }
  return w;
}

}  // namespace bie::formats
