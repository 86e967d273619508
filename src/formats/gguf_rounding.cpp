// Codes and floats as blocks of GGUF's types.
// Source: quantize_row_*_ref of ggml's ggml-quants.c; docs/spec/files.md#writing.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numeric>

#include "bie/formats/error.h"
#include "bie/formats/gguf_writer.h"
#include "bie/formats/group_grid.h"
#include "bie/formats/group_types.h"
#include "formats/gguf_code_bytes.h"
#include "formats/gguf_k_blocks.h"
#include "formats/group_blocks.h"
#include "formats/group_search.h"
#include "formats/half.h"
#include "formats/line_fit.h"

namespace bie::formats {
namespace {

using Byte = std::uint8_t;

/// Puts a block's scale and offset, 16-bit floats already, where a type has them.
using PutScale = void (*)(float s, float z, Byte* to);

void put_scale_first(float s, float /*z*/, Byte* to) { put_half(s, to); }
void put_zero_first(float /*s*/, float z, Byte* to) { put_half(z, to); }
void put_scale_last(float s, float /*z*/, Byte* to) { put_half(s, to + 64); }

void put_scale_and_least(float s, float z, Byte* to) {
  put_half(s, to);
  put_half(-z, to + 2);
}

/// Codes of the floats of a block, its scale and offset before they become 16-bit floats.
using RoundBlock = void (*)(const float* x, Byte* codes, float* s, float* z);

/// 0 where there is none: then every code is that of 0.
float reciprocal(float d) {
  const float inverse = 1.0f / d;
  return std::isfinite(inverse) ? inverse : 0.0f;
}

/// Towards 0.
int whole(float value) { return static_cast<int>(value); }

/// Codes of 2^(bits - 1) for 0 and of 0 for the number of the greatest size.
template <int bits>
void round_around_zero(const float* x, Byte* codes, float* s, float* /*z*/) {
  constexpr int half = 1 << (bits - 1);
  *s = widest<32>(x) / -half;
  const float inverse = reciprocal(*s);
  for (int i = 0; i < 32; ++i)
    codes[i] = static_cast<Byte>(std::min(2 * half - 1, whole(x[i] * inverse + (static_cast<float>(half) + 0.5f))));
}

/// Codes from the least number to the largest.
template <int bits>
void round_between_ends(const float* x, Byte* codes, float* s, float* z) {
  constexpr int most = (1 << bits) - 1;
  const auto [least, largest] = std::minmax_element(x, x + 32);
  *s = (*largest - *least) / most;
  *z = -*least;
  const float inverse = reciprocal(*s);
  for (int i = 0; i < 32; ++i) {
    const float place = (x[i] - *least) * inverse;
    codes[i] = static_cast<Byte>(std::min(most, whole(place + 0.5f)));
  }
}

void round_q8_0(const float* x, Byte* codes, float* s, float* /*z*/) {
  *s = std::fabs(widest<32>(x)) / 127;
  const float inverse = reciprocal(*s);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<Byte>(static_cast<int>(std::round(x[i] * inverse)) + 128);
}

void round_q1_0(const float* x, Byte* codes, float* s, float* z) {
  float sum = 0;
  for (int i = 0; i < 128; ++i) sum += std::fabs(x[i]);
  *z = sum / 128;
  *s = 2 * *z;
  for (int i = 0; i < 128; ++i) codes[i] = x[i] >= 0 ? 1 : 0;
}

/// -1, 0 and 1 times the greatest size.
template <int weights>
void round_ternary(const float* x, Byte* codes, float* s, float* /*z*/) {
  *s = std::fabs(widest<weights>(x));
  const float inverse = reciprocal(*s);
  for (int i = 0; i < weights; ++i) codes[i] = static_cast<Byte>(static_cast<int>(std::round(x[i] * inverse)) + 1);
}

/// The same with the least weighted error among several scales.
using SearchBlock = void (*)(const float* x, const float* weights, Byte* codes, float* s, float* z);

template <int bits>
void search_around_zero(const float* x, const float* weights, Byte* codes, float* s, float* /*z*/) {
  constexpr int half = 1 << (bits - 1);
  *s = fit_scale<32>(x, weights, half, codes);
  const float d = as_half(*s);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<Byte>(half + (d == 0 ? 0 : nearest(x[i] / d, -half, half - 1)));
}

template <int bits>
void search_between_ends(const float* x, const float* weights, Byte* codes, float* s, float* z) {
  constexpr int most = (1 << bits) - 1;
  const Search search{most, -1.0F, 20, false};
  Line line;
  LineFit<32, 1>(x, weights, search).take(codes, &line);
  *s = line.scale;
  *z = line.offset;
  const float d = as_half(*s), offset = as_half(*z);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<Byte>(d == 0 ? 0 : nearest((x[i] + offset) / d, 0, most));
}

/// The set of the largest numbers, the rest being 0, with the least weighted error of all such sets.
template <int count>
void search_ternary(const float* x, const float* weights, Byte* codes, float* s, float* /*z*/) {
  int order[count];
  std::iota(std::begin(order), std::end(order), 0);
  std::sort(std::begin(order), std::end(order), [x](int a, int b) {
    return std::fabs(x[a]) > std::fabs(x[b]) || (std::fabs(x[a]) == std::fabs(x[b]) && a < b);
  });
  float sum = 0, all = 0, best = 0;
  for (const int i : order) {
    sum += weights[i] * std::fabs(x[i]);
    all += weights[i];
    if (sum * sum <= best * all) continue;
    best = sum * sum / all;
    *s = sum / all;
  }
  const float d = as_half(*s);
  for (int i = 0; i < count; ++i) codes[i] = static_cast<Byte>(1 + (d == 0 ? 0 : nearest(x[i] / d, -1, 1)));
}

void search_q1_0(const float* x, const float* weights, Byte* codes, float* s, float* z) {
  float sum = 0, all = 0;
  for (int i = 0; i < 128; ++i) {
    sum += weights[i] * std::fabs(x[i]);
    all += weights[i];
  }
  *z = sum / all;
  *s = 2 * *z;
  for (int i = 0; i < 128; ++i) codes[i] = x[i] >= 0 ? 1 : 0;
}

struct Writer {
  std::string_view name;
  PutScale put_scale;  ///< null for K-quants, as the next two
  RoundBlock round;
  SearchBlock search;  ///< null where a search has nothing to gain
  RoundKBlock round_k = nullptr;
};
constexpr Writer writers[] = {{"Q4_0", put_scale_first, round_around_zero<4>, search_around_zero<4>},
                              {"Q4_1", put_scale_and_least, round_between_ends<4>, search_between_ends<4>},
                              {"Q5_0", put_scale_first, round_around_zero<5>, search_around_zero<5>},
                              {"Q5_1", put_scale_and_least, round_between_ends<5>, search_between_ends<5>},
                              {"Q8_0", put_scale_first, round_q8_0, nullptr},
                              {"Q1_0", put_zero_first, round_q1_0, search_q1_0},
                              {"Q2_0", put_scale_first, round_ternary<64>, search_ternary<64>},
                              {"TQ2_0", put_scale_last, round_ternary<256>, search_ternary<256>},
                              {"Q2_K", nullptr, nullptr, nullptr, round_q2_k},
                              {"Q3_K", nullptr, nullptr, nullptr, round_q3_k},
                              {"Q4_K", nullptr, nullptr, nullptr, round_q4_k},
                              {"Q5_K", nullptr, nullptr, nullptr, round_q5_k},
                              {"Q6_K", nullptr, nullptr, nullptr, round_q6_k}};
constexpr int most_weights = 256;

const Writer& writer_of(const std::string& what, const GgufType& type) {
  const auto* found =
      std::find_if(std::begin(writers), std::end(writers), [&](auto& w) { return w.name == type.name; });
  if (found == std::end(writers))
    throw Error(joined(what, ": ", type.name,
                       " is not written; Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q1_0, Q2_0, TQ2_0 and Q2_K to Q6_K are"));
  return *found;
}

void expect_whole_blocks(const std::string& what, const GgufType& type, std::int64_t columns) {
  if (columns % type.weights != 0)
    throw Error(joined(what, ": rows of ", columns, " are no whole number of blocks of ", type.weights, ", as ",
                       type.name, " has them"));
}

/// More than any block stands for, 65,504 times 127 and 32 at most, and small enough for sums of cubes in float32.
bool is_beyond_k_quants(float value) { return std::fabs(value) > 1e9f; }

std::vector<Byte> rounded_groups(const std::string& what, const GgufType& type, const float* values, std::int64_t count,
                                 std::int64_t columns, const std::vector<float>& weights) {
  std::vector<Byte> blocks(static_cast<std::size_t>(count / type.weights * type.bytes));
  for (std::int64_t i = 0; i < count; i += type.weights)
    round_group(what, type, values + i, weights.empty() ? nullptr : weights.data() + i % columns,
                blocks.data() + i / type.weights * type.bytes);
  return blocks;
}

bool is_half(float value) { return float_of_half(half_of_float(value)) == value; }

}  // namespace

std::vector<Byte> gguf_blocks(const std::string& what, const GgufType& type, const CodedRows& w) {
  const Writer& writer = writer_of(what, type);
  expect_whole_blocks(what, type, w.columns);
  if (writer.put_scale == nullptr)
    throw Error(joined(what, ": scales of codes are not those of ", type.name, ", which are products of two numbers"));
  if (w.bits != type.bits || w.zeros.empty() != (type.zero != 0) || (type.zero != 0 && w.zero != type.zero))
    throw Error(joined(what, ": codes of ", w.bits, " bits with ", w.zeros.empty() ? "whole" : "float",
                       " zeros are not those of ", type.name, ", which has ", type.bits, " bits and ",
                       type.zero == 0 ? "float zeros" : joined("the zero ", type.zero)));
  if (w.group % type.weights != 0 && w.group < w.columns)
    throw Error(joined(what, ": groups of ", w.group, " are no whole blocks of ", type.weights, " weights"));
  // Groups that are wider than a block are written as several equal ones.
  std::vector<Byte> blocks(static_cast<std::size_t>(w.rows * (w.columns / type.weights) * type.bytes), 0);
  Byte* to = blocks.data();
  Byte codes[most_weights];
  const PutCodes put_codes = code_bytes_of(type.name);
  for (std::int64_t r = 0; r < w.rows; ++r)
    for (std::int64_t c = 0; c < w.columns; c += type.weights, to += type.bytes) {
      const auto g = static_cast<std::size_t>(r * w.groups() + c / w.group);
      const float s = w.scales[g], z = w.zeros.empty() ? 0.0f : w.zeros[g];
      const bool signs = type.name == "Q1_0";
      if (signs && s != 2 * z)
        throw Error(joined(what, ": row ", r, " has the scale ", s, " and the zero ", z,
                           ", Q1_0 wants a scale of twice the zero"));
      if ((!signs && !is_half(s)) || !is_half(z))
        throw Error(joined(what, ": row ", r, " has the scale ", s, " and the zero ", z, ", which ", type.name,
                           " holds as 16-bit floats: they would be rounded"));
      for (std::int64_t i = 0; i < type.weights; ++i)
        codes[i] = static_cast<Byte>(code_at(w.words.data() + r * w.row_words(), w.bits, c + i));
      writer.put_scale(s, z, to);
      put_codes(codes, to);
    }
  return blocks;
}

std::vector<Byte> gguf_rounded(const std::string& what, const GgufType& type, const float* values, std::int64_t rows,
                               std::int64_t columns, const float* importance) {
  expect_whole_blocks(what, type, columns);
  const std::int64_t count = rows * columns;
  const std::vector<float> weights = error_weights(what, importance, columns);
  if (!std::all_of(values, values + count, [](float v) { return std::isfinite(v); }))
    throw Error(joined(what, ": the values hold NaN or infinity"));
  if (is_group_type(type)) return rounded_groups(what, type, values, count, columns, weights);
  const Writer& writer = writer_of(what, type);
  if (writer.round_k != nullptr)
    if (const float* const far = std::find_if(values, values + count, is_beyond_k_quants); far != values + count)
      throw Error(joined(what, ": a value of ", *far, " is beyond 16-bit floats, even as scales of codes"));
  std::vector<Byte> blocks(static_cast<std::size_t>(count / type.weights * type.bytes), 0);
  Byte* to = blocks.data();
  Byte codes[most_weights];
  const PutCodes put_codes = code_bytes_of(type.name);
  for (std::int64_t i = 0; i < count; i += type.weights, to += type.bytes) {
    const float* const of_block = weights.empty() ? nullptr : weights.data() + i % columns;
    if (writer.round_k != nullptr) {
      const float largest = writer.round_k(values + i, of_block, codes, to);
      if (!std::isfinite(float_of_half(half_of_float(largest))))
        throw Error(joined(what, ": a block's scale of ", largest, " is beyond 16-bit floats"));
      put_codes(codes, to);
      continue;
    }
    float s = 0, z = 0;
    if (of_block != nullptr && writer.search != nullptr)
      writer.search(values + i, of_block, codes, &s, &z);
    else
      writer.round(values + i, codes, &s, &z);
    if (!std::isfinite(float_of_half(half_of_float(s))) && type.name != "Q1_0")
      throw Error(joined(what, ": a block's scale of ", s, " is beyond 16-bit floats"));
    if (!std::isfinite(float_of_half(half_of_float(z))))
      throw Error(joined(what, ": a block's offset of ", z, " is beyond 16-bit floats"));
    writer.put_scale(s, z, to);
    put_codes(codes, to);
  }
  return blocks;
}

int gguf_most_code(const GgufType& type) { return type.zero == 1 ? 2 : (1 << type.bits) - 1; }

void gguf_put_codes(const GgufType& type, const Byte* codes, Byte* block) {
  if (is_group_type(type))
    put_group_codes(type, codes, block);
  else
    code_bytes_of(type.name)(codes, block);
}

}  // namespace bie::formats
