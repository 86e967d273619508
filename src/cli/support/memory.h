// The memory that this process may still take.
#pragma once

#include <cstdint>
#include <optional>

namespace bie::cli {

/// Bytes: what Linux calls available, and what the control group leaves, whichever is less. Nothing where neither is
/// told.
std::optional<std::int64_t> available_memory();

}  // namespace bie::cli
