// How many CPU threads a command takes.
#pragma once

#include <cstdint>

#include "bie/models/classifier.h"

namespace bie::cli {

/// Before anything runs: `asked` threads, or where that is 0 as many as the process may use, unless OMP_NUM_THREADS or
/// MKL_NUM_THREADS says.
void start_threads(int asked);

/// Fewer for a net whose steps are too small to be shared, where nobody said how many.
void use_threads_for(const models::ModelConfig& config, std::int64_t images);

}  // namespace bie::cli
