// Weight-only layers of GPTQ's and GreenBit's files, told by what the files hold.
// Source: docs/spec/files.md#gptq, docs/spec/files.md#greenbit.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bie/formats/array.h"
#include "bie/formats/weights_folder.h"

namespace bie::formats {

/// One linear; `tensors` are its entries by the names that docs/spec/weight-only.md has (qweight, scales, ...).
struct CodedLayer {
  enum class Kind : std::uint8_t {
    gptq,   ///< W = s * (q - z), z = stored + 1
    gptq2,  ///< W = s * (q - z), z as it is stored
    gba,    ///< W = q * s - z; scales and zeros may be quantised themselves
    mbwq,   ///< rows permuted, of one width
    mixed,  ///< rows permuted, of several widths: bits is 0
    table,  ///< an embedding of our own files: out_features rows of in_features codes
  } kind = Kind::gptq;
  int bits = 0;
  std::int64_t in_features = 0, out_features = 0, group = 0;
  std::int64_t scale_group = 0;  ///< of gba: columns that share a scale of scales; 0 where they are not quantised
  bool whole_zeros = false;      ///< of gba: zeros are packed, as GPTQ's
  bool zero_bias = false;        ///< the file has a bias, of zeros, which is not among the tensors
  bool by_column = false;        ///< of gba: statistics of a column serve every group (dq_mode 1)
  std::map<std::string, Array> tensors = {};
};

struct CodedModel {
  std::map<std::string, CodedLayer> layers;  ///< by the name before ".qweight"
  std::map<std::string, Array> rest;         ///< all other tensors
};

/// Bits, groups and sizes are those of the tensors; the configurations say what these leave open: the size of a group
/// that does not divide k, `checkpoint_format`, per-layer `dynamic` overrides.
/// @throws Error, one sentence naming the file and the tensor: a format that is not read (AWQ, EXL2, bitsandbytes,
/// compressed-tensors, marlin) by its name, shapes that do not fit each other, NaN or infinity in a scale, a group
/// index out of range.
CodedModel coded_layers(const WeightsFolder& folder);

/// Rows of each width of a channel-mix layer: max(1, int(k * share) / group) * group, the last takes the rest.
/// Source: green-bit-llm, get_packed_info.
std::vector<std::int64_t> mixed_widths(std::int64_t k, const std::vector<double>& shares,
                                       const std::vector<std::int64_t>& groups);

}  // namespace bie::formats
