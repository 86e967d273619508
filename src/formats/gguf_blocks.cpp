// GGUF's types: sizes of blocks, and where a block keeps its codes, scales and offsets.
// Source: ggml-common.h and dequantize_row_* of ggml's ggml-quants.c.
#include "formats/gguf_blocks.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "bie/formats/error.h"
#include "bie/formats/group_types.h"
#include "formats/group_blocks.h"
#include "formats/half.h"

namespace bie::formats {
namespace {

using Byte = std::uint8_t;

/// 32 nibbles: the low ones of 16 bytes, then the high ones.
void nibbles(const Byte* q, Byte* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = q[i] & 15;
    codes[16 + i] = q[i] >> 4;
  }
}

/// As above with a fifth bit from 4 bytes.
void five_bits(const Byte* high, const Byte* q, Byte* codes) {
  nibbles(q, codes);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<Byte>(codes[i] | (high[i / 8] >> (i % 8) & 1) << 4);
}

/// 256 codes of 2 bits: of each 32 bytes the lowest bits, then the next ones.
void two_bits(const Byte* q, Byte* codes) {
  for (int i = 0; i < 256; ++i) codes[i] = q[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
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

void open_q2_k(const Byte* b, Byte* codes, float* s, float* z) {
  const float d = half_at(b + 80), least = half_at(b + 82);
  for (int g = 0; g < 16; ++g) {
    s[g] = d * static_cast<float>(b[g] & 15);
    z[g] = least * static_cast<float>(b[g] >> 4);
  }
  two_bits(b + 16, codes);
}

void open_q3_k(const Byte* b, Byte* codes, float* s, float* /*z*/) {
  const Byte *const high = b, *const packed = b + 96;
  const float d = half_at(b + 108);
  for (int g = 0; g < 16; ++g) {
    const int low = packed[g % 8] >> (g / 8 * 4) & 15, top = packed[8 + g % 4] >> (g / 4 * 2) & 3;
    s[g] = d * static_cast<float>((low | top << 4) - 32);
  }
  two_bits(b + 32, codes);
  for (int i = 0; i < 256; ++i) codes[i] = static_cast<Byte>(codes[i] | (high[i % 32] >> (i / 32) & 1) << 2);
}

/// Eight scales and eight offsets of 6 bits in 12 bytes.
void six_bit_pairs(const Byte* b, float* s, float* z) {
  const float d = half_at(b), least = half_at(b + 2);
  const Byte* const p = b + 4;
  for (int g = 0; g < 8; ++g) {
    const int scale = g < 4 ? p[g] & 63 : (p[g + 4] & 15) | p[g - 4] >> 6 << 4;
    const int offset = g < 4 ? p[g + 4] & 63 : p[g + 4] >> 4 | p[g] >> 6 << 4;
    s[g] = d * static_cast<float>(scale);
    z[g] = least * static_cast<float>(offset);
  }
}

void open_q4_k(const Byte* b, Byte* codes, float* s, float* z) {
  six_bit_pairs(b, s, z);
  const Byte* const q = b + 16;
  for (int i = 0; i < 256; ++i) codes[i] = q[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
}

void open_q5_k(const Byte* b, Byte* codes, float* s, float* z) {
  six_bit_pairs(b, s, z);
  const Byte *const high = b + 16, *const q = b + 48;
  for (int i = 0; i < 256; ++i) {
    const int low = q[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
    codes[i] = static_cast<Byte>(low | (high[i % 32] >> (i / 32) & 1) << 4);
  }
}

void open_q6_k(const Byte* b, Byte* codes, float* s, float* /*z*/) {
  const Byte *const low = b, *const high = b + 128, *const scales = b + 192;
  const float d = half_at(b + 208);
  for (int g = 0; g < 16; ++g) s[g] = d * static_cast<float>(static_cast<std::int8_t>(scales[g]));
  for (int i = 0; i < 256; ++i) {
    const int nibble = low[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15;
    const int top = high[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
    codes[i] = static_cast<Byte>(nibble | top << 4);
  }
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
  for (int i = 0; i < 128; ++i) codes[i] = b[2 + i / 8] >> (i % 8) & 1;
}

template <int weights>
void open_q2_0(const Byte* b, Byte* codes, float* s, float* /*z*/) {
  s[0] = half_at(b);
  for (int i = 0; i < weights; ++i) codes[i] = b[2 + i / 4] >> (i % 4 * 2) & 3;
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

void open_iq4_xs(const Byte* b, Byte* codes, float* s, float* /*z*/) {
  const float d = half_at(b);
  const int high = b[2] | b[3] << 8;
  for (int g = 0; g < 8; ++g) {
    const int low = b[4 + g / 2] >> (g % 2 * 4) & 15;
    s[g] = d * static_cast<float>((low | (high >> (2 * g) & 3) << 4) - 32);
    nibbles(b + 8 + 16 * g, codes + 32 * g);
  }
  on_iq4_grid(codes, 256);
}

/// Floats of 4 bits are halves of whole numbers up to 12: these, plus 16.
void on_fp4_grid(Byte* codes, int count) {
  constexpr int sizes[] = {0, 1, 2, 3, 4, 6, 8, 12};
  for (int i = 0; i < count; ++i) {
    const int size = sizes[codes[i] & 7];
    codes[i] = static_cast<Byte>(16 + (codes[i] < 8 ? size : -size));
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
};

constexpr Row plain(std::uint32_t id, std::string_view name, Element element) {
  return {{id, name, 1, size_of(element), GgufType::Kind::elements, element, 0, 0, 0, Element::f32}, nullptr};
}
constexpr Row coded(std::uint32_t id, std::string_view name, std::int64_t weights, std::int64_t bytes, int bits,
                    std::int64_t group, int zero, Element numbers, OpenBlock open) {
  return {{id, name, weights, bytes, GgufType::Kind::codes, Element::u8, bits, group, zero, numbers}, open};
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
    coded(10, "Q2_K", 256, 84, 2, 16, 0, Element::f32, open_q2_k),
    coded(11, "Q3_K", 256, 110, 3, 16, 4, Element::f32, open_q3_k),
    coded(12, "Q4_K", 256, 144, 4, 32, 0, Element::f32, open_q4_k),
    coded(13, "Q5_K", 256, 176, 5, 32, 0, Element::f32, open_q5_k),
    coded(14, "Q6_K", 256, 210, 6, 16, 32, Element::f32, open_q6_k),
    coded(34, "TQ1_0", 256, 54, 2, 256, 1, Element::f16, open_tq1_0),
    coded(35, "TQ2_0", 256, 66, 2, 256, 1, Element::f16, open_tq2_0),
    coded(41, "Q1_0", 128, 18, 1, 128, 0, Element::f32, open_q1_0),
    coded(42, "Q2_0", 64, 18, 2, 64, 1, Element::f16, open_q2_0<64>),
    coded(42, "Q2_0_128", 128, 34, 2, 128, 1, Element::f16, open_q2_0<128>),
    coded(20, "IQ4_NL", 32, 18, 8, 32, 128, Element::f16, open_iq4_nl),
    coded(23, "IQ4_XS", 256, 136, 8, 32, 128, Element::f32, open_iq4_xs),
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
