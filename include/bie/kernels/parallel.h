// How a kernel asks its caller for threads: kernels own none.
#pragma once

#include <cstdint>
#include <memory>

namespace bie::kernels {

/// Runs body(context, begin, end) on disjoint ranges that together cover [0, count), at most ceil(count / grain) of
/// them, and returns when all have ended. `body` neither throws nor calls back into `run`.
struct Parallel {
  using Body = void (*)(void* context, std::int64_t begin, std::int64_t end);
  void (*run)(void* pool, std::int64_t count, std::int64_t grain, Body body, void* context);
  void* pool;
  int threads;       ///< how many ranges can run at once; a kernel uses it to size its ranges
  int fineness = 1;  ///< a kernel may make tasks that many times as small: threads that are awake cost little
};

/// Runs everything on the calling thread.
Parallel serial();

/// Calls body(begin, end) through `parallel`.
template <class F>
void parallel_for(const Parallel& parallel, std::int64_t count, std::int64_t grain, const F& body) {
  if (count <= 0) return;
  parallel.run(
      parallel.pool, count, grain,
      [](void* context, std::int64_t begin, std::int64_t end) { (*static_cast<const F*>(context))(begin, end); },
      const_cast<F*>(&body));
}

/// A small pool for programs without a threading library of their own. Inside torch use at::parallel_for instead.
class ThreadPool {
 public:
  /// @throws std::system_error where the system has not so many threads.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  Parallel parallel();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Threads for a pass of many short loops, such as one token through all layers of a language model. A thread without
/// work spins for some microseconds before it sleeps. Threads take parts of a loop dynamically, so that a descheduled
/// thread delays only the part that it has begun. Loops of several callers follow each other.
class ThreadTeam {
 public:
  /// @throws std::system_error where the system has not so many threads.
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  Parallel parallel();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bie::kernels
