// The sizes of a language model, from the metadata of its files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bie/llm/model_file.h"

namespace bie::llm {

struct Architecture;

/// A gated unit multiplies by this function of its gate.
enum class Activation : std::uint8_t { silu, gelu, relu2 };

/// The states of a text's tokens that make its vector, in the numbering of GGUF. A rank is made of the last one by the
/// model's classifier.
enum class Pooling : std::uint8_t { none, mean, first, last, rank };

/// How pairs of a position's queries and keys turn.
struct Rotation {
  std::vector<double> frequencies;  ///< of each rotated pair
  float size = 1;                   ///< factor of sines and cosines
};

/// Settings that differ from layer to layer.
struct LayerConfig {
  std::int64_t window = 0;   ///< positions that a query sees, its own included; 0: all
  std::size_t rotation = 0;  ///< of Config::rotations
  bool half_keys = false;    ///< a cache of codes keeps its keys as float16
};

struct Config {
  const Architecture* architecture = nullptr;
  std::int64_t layers = 0, width = 0, inner = 0;  ///< blocks, elements of a row, elements inside the gated unit
  std::int64_t heads = 0, kv_heads = 0, head_size = 0;
  std::int64_t vocabulary = 0, context = 0;
  float eps = 0, scale = 0;
  float embedding_factor = 1;
  float score_cap = 0, logit_cap = 0;  ///< soft caps; 0: none
  Activation activation = Activation::silu;
  Pooling pooling = Pooling::none;
  bool neighbours = false;          ///< rotated pairs are (2 i, 2 i + 1), else (i, i + pairs)
  std::vector<Rotation> rotations;  ///< all of as many pairs
  std::vector<LayerConfig> per_layer;

  std::int64_t pairs() const { return static_cast<std::int64_t>(rotations.front().frequencies.size()); }
  const LayerConfig& layer(std::int64_t index) const { return per_layer[static_cast<std::size_t>(index)]; }
  /// Positions before the next one that some layer still sees; 0: all.
  std::int64_t window() const;
};

/// Reads and bounds every number; nothing is allocated by a number of the file alone.
/// @throws formats::Error naming the file and the key: an architecture or a scaling of rotations that is not read, a
/// number that is missing or out of range.
Config read_config(const ModelFile& file);

}  // namespace bie::llm
