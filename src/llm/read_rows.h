// How many rows of logits a read of a text asks for at a time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace bie::llm {

inline constexpr std::int64_t most_read_rows = 512;  ///< so that texts of few tokens take few caches

/// As many rows as 128 MiB of logits hold.
inline std::int64_t read_rows(std::int64_t vocabulary) {
  return std::clamp((std::int64_t{1} << 25) / vocabulary, std::int64_t{1}, most_read_rows);
}

}  // namespace bie::llm
