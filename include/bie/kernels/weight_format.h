// Meaning of a weight's integers: one description for the weights of layers and of files.
//
//     W[i, j] = s * c              Offset::none; c = q as a signed number, q - 2^(bits - 1) of unsigned codes
//     W[i, j] = s * q - z          Offset::value, z a float (GBA, MBWQ; GGUF's scale * q + offset with z = -offset)
//     W[i, j] = s * (q - z)        Offset::zero, z a whole number (GPTQ)
//
// i is one of k input features, j one of n outputs; s and z are those of the group of (i, j).
#pragma once

#include <cstdint>

#include "bie/kernels/dtype.h"

namespace bie::kernels {

/// Granularity of scales and zeros.
enum class ScaleOf : std::uint8_t {
  tensor,
  channel,  ///< an output
  group,    ///< the rows of k in one group, and an output
};

/// Kind of zero point: none, a float subtracted from s * q, or a whole number subtracted from q.
enum class Offset : std::uint8_t { none, value, zero };

/// Signed codes of one bit are +1 and -1, unsigned ones 0 and 1.
struct WeightFormat {
  int bits;  ///< 1, 2, 3, 4, 5, 6 or 8
  bool is_signed;
  ScaleOf scale;
  std::int64_t group;  ///< rows of k that share a scale; 0: all, or an index says it of each row
  Offset offset;
  bool reorders;  ///< the rows of k stand in an order of their own

  constexpr bool operator==(const WeightFormat& o) const {
    return bits == o.bits && is_signed == o.is_signed && scale == o.scale && group == o.group && offset == o.offset &&
           reorders == o.reorders;
  }
};

/// Signs or signed codes of one scale: the weights of binary and of 8- and 4-bit layers.
constexpr WeightFormat tensor_format(int bits) { return {bits, true, ScaleOf::tensor, 0, Offset::none, false}; }
/// Rows of one width in packed words: `rows` codes per column, dense across the words of the run, the first code in the
/// lowest bits. A weight of one width is one run.
struct BitRun {
  int bits;
  std::int64_t rows;
};

/// Words per column that `rows` codes take; pad bits are 0 and ignored.
constexpr std::int64_t run_words(int bits, std::int64_t rows) { return (rows * bits + 31) / 32; }

/// A weight [k, n] of unsigned codes in 32-bit words, as GPTQ (one run) and EXL2 (runs of falling widths) store it.
/// Packed row i holds the weights of input feature input_of[i] and is in group group_of[i].
struct PackedWeight {
  std::int64_t k, n, groups;
  const std::uint32_t* words;  ///< [words of all runs, n]
  const BitRun* runs;          ///< their rows add up to k
  int run_count;
  const std::int32_t* group_of;  ///< [k] in [0, groups); the rows of one group have one width
  const std::int32_t* input_of;  ///< [k], a permutation; null: i
  const void* scales;            ///< [groups, n]
  Dtype scale_dtype;             ///< f32, bf16 or f16
  Offset offset;
  const void* zeros;  ///< [groups, n]: floats of scale_dtype (value), int32 in 1 ... 2^bits (zero), null (none)
};

/// Scales of one output as products of two numbers (K-quants): in float32 and rounded once,
///
///     s(g) = d(t) * (a(g) - 128)    z(g) = least(t) * b(g)
///
/// with group g in super-block t.
struct ScaleLevels {
  std::uint8_t* a;  ///< [groups]
  std::uint8_t* b;  ///< [groups]; 0 without Offset::value
  float* d;         ///< [super-blocks], float16 values
  float* least;     ///< [super-blocks], float16 values; 0 without Offset::value
};

/// A weight whose outputs lie one after the other, as files hold them: the code of output j and input feature i is in
/// group i / group of output j. A function opens one output at a time, so any file's blocks become panels without
/// another copy in between.
///
///     W[i, j] = s * (step * q - zero)      Offset::none: whole numbers times a scale
///     W[i, j] = s * q - z                  Offset::value
///
/// Symmetric codes have step 1 and zero 2^(bits - 1), ternary ones 1 and 1, signs 2 and 1.
struct WeightRows {
  std::int64_t k, n, group;
  int bits;
  Dtype scale_dtype;  ///< f32, bf16 or f16; holds every scale and float zero of the file exactly
  Offset offset;      ///< none or value
  int step;           ///< Offset::none: 1, or 2 where bits = 1
  int zero;           ///< Offset::none: 1 ... 2^bits, and 2^(bits - 1) where bits > 4
  /// Writes the codes [k] of output j, its scales [groups()] and, with Offset::value, its zeros [groups()].
  void (*open)(const void* file, std::int64_t j, std::uint8_t* codes, float* scales, float* zeros);
  const void* file;
  /// Rows of k in a super-block, a multiple of `group` by at most 255, where scales are products of two numbers; else
  /// 0. Offset::value or symmetric codes.
  std::int64_t super_block = 0;
  /// Writes the two numbers of each scale and zero of output j that `open` multiplies; null where super_block is 0.
  void (*open_levels)(const void* file, std::int64_t j, const ScaleLevels& to) = nullptr;

  constexpr std::int64_t groups() const { return (k + group - 1) / group; }
  constexpr bool is_symmetric() const { return offset == Offset::none && step == 1 && zero == 1 << (bits - 1); }
};

}  // namespace bie::kernels
