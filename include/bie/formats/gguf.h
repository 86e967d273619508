// GGUF, the files of llama.cpp: metadata, then tensors in blocks of codes.
// Source: the description of GGUF in ggml-org/ggml, ggml-common.h and ggml-quants.c there; docs/spec/files.md#gguf.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "bie/formats/array.h"
#include "bie/formats/coded_rows.h"

namespace bie::formats {

/// Numbered as in files.
enum class GgufValueType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

/// Unsigned numbers and bools are uint64, signed ones int64, floats double.
struct GgufValue {
  GgufValueType type = GgufValueType::u8;  ///< of an array: of its elements
  std::variant<std::uint64_t, std::int64_t, double, std::string, std::vector<std::uint64_t>, std::vector<std::int64_t>,
               std::vector<double>, std::vector<std::string>, std::vector<GgufValue>>
      value;
};

/// How the numbers of a tensor are stored: in blocks along its last axis.
struct GgufType {
  std::uint32_t id;
  std::string_view name;
  std::int64_t weights, bytes;  ///< per block
  enum class Kind : std::uint8_t {
    elements,  ///< plain numbers, `element`
    codes,     ///< codes with a scale and an offset for each group
    other,     ///< the size alone is known
  } kind;
  Element element;
  int bits;                 ///< per code
  std::int64_t group;       ///< weights that share a scale
  int zero;                 ///< W = s * (q - zero); 0: W = s * q - z with a float z
  Element numbers;          ///< the smallest float that holds every scale and offset: f16, bf16, or f32 of products
  bool has_levels = false;  ///< scales and offsets are products of a 16-bit float of the block and a whole number

  /// Q1_0: s = 2 z, so W is z or -z, and z is a 16-bit float.
  constexpr bool are_signs() const { return id == 41; }
};

/// The type of a name, "Q4_K"; null for none that is known. "Q2_0" has groups of 64; "Q2_0_128" is what sentences call
/// that of older files, under the same number.
const GgufType* gguf_type(std::string_view name);

struct GgufTensor {
  std::string name;
  std::vector<std::int64_t> sizes;  ///< as torch counts them: the last axis is contiguous
  const GgufType* type = nullptr;
  std::shared_ptr<const Bytes> bytes;  ///< views into the file's map

  std::int64_t columns() const { return sizes.empty() ? 1 : sizes.back(); }
  std::int64_t count() const;
  std::int64_t rows() const { return count() / columns(); }
};

struct GgufFile {
  std::string path;
  std::map<std::string, GgufValue> metadata;
  std::vector<GgufTensor> tensors;  ///< in the order of the file

  /// Null where there is none.
  const GgufTensor* find(std::string_view name) const;
};

/// Maps a file of version 2 or 3 and trusts nothing in it: sizes are checked against the file before anything is
/// allocated. Tensors are views into the map, as those of load_safetensors are; they lie one behind the other, as ggml
/// wants them. A big-endian file, version 1, a type without a known size (I2_S of bitnet.cpp among them) are refused.
/// Q2_0 has blocks of 64 or 128 weights, which the distances between tensors tell. A file in parts (metadata
/// "split.count", names NAME-00001-of-00005.gguf) is read whole, from any of its parts, all of which lie in one folder.
/// @throws Error, one sentence naming the file and the tensor.
GgufFile load_gguf(const std::string& path);

/// Elements of plain numbers as an array.
/// @throws Error for blocks of codes.
Array gguf_array(const GgufFile& file, const GgufTensor& tensor);

/// The codes, scales and offsets of a tensor, each the file's own: products of a 16-bit float and a small integer,
/// which float32 holds. Grids of whole numbers (IQ4_NL, IQ4_XS, MXFP4, NVFP4) become codes of 8 or 5 bits.
/// @throws Error for plain numbers, a type without codes, NaN or infinity in a scale or offset.
CodedRows gguf_codes(const GgufFile& file, const GgufTensor& tensor);

/// Opens one row of a type with codes: `columns` codes, and for each group a scale and, where the type's zero is 0, an
/// offset z, which may be NaN or infinite.
void gguf_row(const GgufType& type, const std::uint8_t* blocks, std::int64_t columns, std::uint8_t* codes,
              float* scales, float* zeros);

/// The factors of the scales and offsets of a row of a type that has levels: s = d * (a - 128) and z = least * b, with
/// one d and least for each block, one a and b for each group. Where the type's zero is not 0, least and b are 0.
void gguf_levels(const GgufType& type, const std::uint8_t* blocks, std::int64_t columns, std::uint8_t* a,
                 std::uint8_t* b, float* d, float* least);

/// Codes of blocks in memory. @param what  begins error sentences.
CodedRows gguf_codes(const std::string& what, const GgufType& type, const std::uint8_t* blocks, std::int64_t rows,
                     std::int64_t columns);

}  // namespace bie::formats
