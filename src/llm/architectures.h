// The architectures that are read: a row each, found by the name in a file's metadata.
#pragma once

#include <cstdint>
#include <string_view>

namespace bie::llm {

struct Architecture {
  std::string_view name;
  bool neighbours;       ///< rotated pairs of GGUF files are (2 i, 2 i + 1), else (i, i + pairs)
  bool head_norms;       ///< queries and keys are normalised, head by head
  bool is_gemma;         ///< norms behind attention and gated unit too, a GELU, an embedding times sqrt(width)
  std::int64_t pattern;  ///< of so many layers the last one sees all positions, the others a window; 0: all are alike
};

/// Null for a name that is not read.
const Architecture* architecture(std::string_view name);
/// "llama, qwen2, qwen3"
std::string_view architecture_names();

}  // namespace bie::llm
