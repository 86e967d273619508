// The sizes of a language model, from a file's metadata.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bie/formats/gguf.h"

namespace bie::llm {

struct Architecture;

struct Config {
  const Architecture* architecture = nullptr;
  std::int64_t layers = 0, width = 0, inner = 0;  ///< blocks, elements of a row, elements inside the gated unit
  std::int64_t heads = 0, kv_heads = 0, head_size = 0;
  std::int64_t vocabulary = 0, context = 0;
  std::int64_t window = 0;  ///< positions that a query sees, its own included; 0: all
  float eps = 0, scale = 0;
  std::vector<double> frequencies;  ///< of each rotated pair
  float rotation_size = 1;          ///< factor of sines and cosines
  std::vector<bool> half_keys;      ///< of each layer: a cache of codes keeps its keys as float16

  std::int64_t pairs() const { return static_cast<std::int64_t>(frequencies.size()); }
};

/// Reads and bounds every number; nothing is allocated by a number of the file alone.
/// @throws formats::Error naming the file and the key: an architecture or a scaling of rotations that is not read, a
/// number that is missing or out of range.
Config read_config(const formats::GgufFile& file);

}  // namespace bie::llm
