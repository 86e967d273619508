// Looks over the shoulder of a Parallel: which threads ran the bodies of each loop.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "bie/kernels/parallel.h"

namespace bie::kernels::test {

class ThreadWatch {
 public:
  explicit ThreadWatch(const Parallel& inner) : inner_(inner) {}

  Parallel parallel() {
    return {[](void* self, std::int64_t count, std::int64_t grain, Parallel::Body body, void* context) {
              static_cast<ThreadWatch*>(self)->run(count, grain, body, context);
            },
            this, inner_.threads};
  }

  /// Distinct threads of every loop so far, in order.
  const std::vector<std::size_t>& threads_of_loops() const { return loops_; }

 private:
  void run(std::int64_t count, std::int64_t grain, Parallel::Body body, void* context) {
    std::mutex mutex;
    std::set<std::thread::id> threads;
    parallel_for(inner_, count, grain, [&](std::int64_t begin, std::int64_t end) {
      {
        const std::lock_guard<std::mutex> lock(mutex);
        threads.insert(std::this_thread::get_id());
      }
      body(context, begin, end);
    });
    loops_.push_back(threads.size());
  }

  Parallel inner_;
  std::vector<std::size_t> loops_;
};

}  // namespace bie::kernels::test
