// Files that are read side by side.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace bie::data {

/// Calls work(i) for i in 0, ..., count - 1 on so many threads. Where calls throw, the exception of the least i is
/// thrown, after all threads have ended; what is behind it may not have been called.
template <class Work>
void on_workers(std::int64_t count, int threads, const Work& work) {
  std::atomic<std::int64_t> next = 0, failed = count;
  std::mutex mutex;
  std::exception_ptr error;
  const auto worker = [&] {
    for (std::int64_t i = next++; i < failed; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (i < failed) error = std::current_exception();
        failed = i < failed ? i : failed.load();
      }
    }
  };
  std::vector<std::jthread> helpers;
  for (int i = 1; i < threads && i < count; ++i) helpers.emplace_back(worker);
  worker();
  helpers.clear();  // waits for them
  if (error) std::rethrow_exception(error);
}

}  // namespace bie::data
