// The architectures that are read: a row each, found by the name in a file's metadata.
#pragma once

#include <cstdint>
#include <string_view>

#include "bie/llm/config.h"

namespace bie::llm {

struct Architecture {
  std::string_view name;
  bool neighbours = false;                   ///< rotated pairs of GGUF files are (2 i, 2 i + 1), else (i, i + pairs)
  bool head_norms = false;                   ///< queries and keys are normalised, head by head
  bool end_norms = false;                    ///< norms behind attention and gated unit too
  bool sub_norms = false;                    ///< what the last products of attention and gated unit read is normalised
  bool scales_embedding = false;             ///< times sqrt(width)
  bool tensor_scales = false;                ///< ternary tensors whose scales are one number are multiplied as such
  bool has_caps = false;                     ///< soft caps of scores and logits
  Activation activation = Activation::silu;  ///< where the file says nothing
  std::int64_t pattern = 0;    ///< of so many layers the last one sees all, the others a window; 0: all are alike
  bool turns_windows = false;  ///< pairs of layers with a window turn by a base of their own
  std::int64_t window = 0;     ///< where the file says nothing; 0: none
  std::int64_t by_width = 0;   ///< layers of the one model that scales scores by width / heads, which no file says
};

/// Null for a name that is not read.
const Architecture* architecture(std::string_view name);
/// "llama, qwen2, qwen3"
std::string_view architecture_names();

}  // namespace bie::llm
