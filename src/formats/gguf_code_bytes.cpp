#include "formats/gguf_code_bytes.h"

#include <algorithm>
#include <iterator>

namespace bie::formats {
namespace {

using Byte = std::uint8_t;

/// 32 codes of which the low four bits are put: two a byte, 16 codes apart.
void put_nibbles(const Byte* codes, Byte* to) {
  for (int i = 0; i < 16; ++i) to[i] = static_cast<Byte>((codes[i] & 15) | (codes[16 + i] & 15) << 4);
}

/// The fifth bits of 32 codes.
void put_fifth_bits(const Byte* codes, Byte* to) {
  std::fill_n(to, 4, Byte{0});
  for (int i = 0; i < 32; ++i) to[i / 8] = static_cast<Byte>(to[i / 8] | codes[i] >> 4 << (i % 8));
}

/// 256 codes of which the lowest two bits are put: four a byte, 32 codes apart.
void put_two_bits(const Byte* codes, Byte* to) {
  for (int half = 0; half < 2; ++half)
    for (int i = 0; i < 32; ++i) {
      const Byte* const from = codes + 128 * half + i;
      to[32 * half + i] =
          static_cast<Byte>((from[0] & 3) | (from[32] & 3) << 2 | (from[64] & 3) << 4 | (from[96] & 3) << 6);
    }
}

/// 256 codes of which the low four bits are put: two a byte, 32 codes apart.
void put_four_bits(const Byte* codes, Byte* to) {
  for (int part = 0; part < 4; ++part)
    for (int i = 0; i < 32; ++i)
      to[32 * part + i] = static_cast<Byte>((codes[64 * part + i] & 15) | (codes[64 * part + 32 + i] & 15) << 4);
}

/// One bit of each of 256 codes: eight a byte, 32 codes apart.
void put_one_bit(const Byte* codes, int bit, Byte* to) {
  std::fill_n(to, 32, Byte{0});
  for (int i = 0; i < 256; ++i) to[i % 32] = static_cast<Byte>(to[i % 32] | (codes[i] >> bit & 1) << (i / 32));
}

void put_q4_0(const Byte* codes, Byte* block) { put_nibbles(codes, block + 2); }
void put_q4_1(const Byte* codes, Byte* block) { put_nibbles(codes, block + 4); }

void put_q5_0(const Byte* codes, Byte* block) {
  put_fifth_bits(codes, block + 2);
  put_nibbles(codes, block + 6);
}

void put_q5_1(const Byte* codes, Byte* block) {
  put_fifth_bits(codes, block + 4);
  put_nibbles(codes, block + 8);
}

void put_q8_0(const Byte* codes, Byte* block) {
  for (int i = 0; i < 32; ++i) block[2 + i] = codes[i] ^ 0x80;
}

void put_q1_0(const Byte* codes, Byte* block) {
  for (int i = 0; i < 16; ++i) {
    Byte byte = 0;
    for (int bit = 0; bit < 8; ++bit) byte = static_cast<Byte>(byte | codes[8 * i + bit] << bit);
    block[2 + i] = byte;
  }
}

void put_q2_0(const Byte* codes, Byte* block) {
  for (int i = 0; i < 16; ++i, codes += 4)
    block[2 + i] = static_cast<Byte>(codes[0] | codes[1] << 2 | codes[2] << 4 | codes[3] << 6);
}

void put_q2_k(const Byte* codes, Byte* block) { put_two_bits(codes, block + 16); }

void put_q3_k(const Byte* codes, Byte* block) {
  put_one_bit(codes, 2, block);
  put_two_bits(codes, block + 32);
}

void put_q4_k(const Byte* codes, Byte* block) { put_four_bits(codes, block + 16); }

void put_q5_k(const Byte* codes, Byte* block) {
  put_one_bit(codes, 4, block + 16);
  put_four_bits(codes, block + 48);
}

void put_q6_k(const Byte* codes, Byte* block) {
  for (int half = 0; half < 2; ++half)
    for (int i = 0; i < 32; ++i) {
      const Byte* const q = codes + 128 * half + i;
      block[64 * half + i] = static_cast<Byte>((q[0] & 15) | (q[64] & 15) << 4);
      block[64 * half + 32 + i] = static_cast<Byte>((q[32] & 15) | (q[96] & 15) << 4);
      block[128 + 32 * half + i] = static_cast<Byte>(q[0] >> 4 | q[32] >> 4 << 2 | q[64] >> 4 << 4 | q[96] >> 4 << 6);
    }
}

struct CodeBytes {
  std::string_view type;
  PutCodes put;
};
constexpr CodeBytes all[] = {{"Q4_0", put_q4_0}, {"Q4_1", put_q4_1}, {"Q5_0", put_q5_0}, {"Q5_1", put_q5_1},
                             {"Q8_0", put_q8_0}, {"Q1_0", put_q1_0}, {"Q2_0", put_q2_0}, {"TQ2_0", put_two_bits},
                             {"Q2_K", put_q2_k}, {"Q3_K", put_q3_k}, {"Q4_K", put_q4_k}, {"Q5_K", put_q5_k},
                             {"Q6_K", put_q6_k}};

}  // namespace

PutCodes code_bytes_of(std::string_view type) {
  const auto* const found = std::find_if(std::begin(all), std::end(all), [&](auto& c) { return c.type == type; });
  return found == std::end(all) ? nullptr : found->put;
}

}  // namespace bie::formats
