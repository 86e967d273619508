// Rows of a matrix shared among threads, for work that is done outside of kernels and may fail.
#pragma once

#include <cstdint>
#include <functional>

#include "bie/kernels/parallel.h"

namespace bie::kernels {

/// Calls body(begin, end) as parallel_for does. The first exception is thrown again when all calls have ended.
void share_rows(const Parallel& parallel, std::int64_t rows, std::int64_t grain,
                const std::function<void(std::int64_t begin, std::int64_t end)>& body);

}  // namespace bie::kernels
