#include "bie/kernels/shared_rows.h"

#include <exception>
#include <mutex>

namespace bie::kernels {

void share_rows(const Parallel& parallel, std::int64_t rows, std::int64_t grain,
                const std::function<void(std::int64_t begin, std::int64_t end)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  parallel_for(parallel, rows, grain, [&](std::int64_t begin, std::int64_t end) {
    try {
      body(begin, end);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!first) first = std::current_exception();
    }
  });
  if (first) std::rethrow_exception(first);
}

}  // namespace bie::kernels
