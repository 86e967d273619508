#include "bie/kernels/parallel.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace bie::kernels {

Parallel serial() {
  return {[](void*, std::int64_t count, std::int64_t, Parallel::Body body, void* context) { body(context, 0, count); },
          nullptr, 1};
}

struct ThreadPool::Impl {
  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  /// Also where the system refused a thread after the first ones.
  ~Impl() {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      stopping = true;
    }
    wake.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  std::mutex calls;  // one parallel loop at a time
  std::mutex mutex;
  std::condition_variable wake, done;
  std::vector<std::thread> workers;
  Parallel::Body body = nullptr;
  void* context = nullptr;
  std::int64_t count = 0, chunk = 0;
  std::int64_t generation = 0;
  int busy = 0;
  bool stopping = false;

  void run_range(std::int64_t index) const {
    const std::int64_t begin = index * chunk;
    if (begin < count) body(context, begin, std::min(count, begin + chunk));
  }

  void work(std::int64_t index) {
    std::int64_t seen = 0;
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      wake.wait(lock, [&] { return stopping || generation != seen; });
      if (stopping) return;
      seen = generation;
      lock.unlock();
      run_range(index);
      lock.lock();
      if (--busy == 0) done.notify_one();
    }
  }

  void run(std::int64_t total, std::int64_t grain, Parallel::Body f, void* ctx) {
    const std::int64_t threads = static_cast<std::int64_t>(workers.size()) + 1;
    const std::int64_t wanted = std::min(threads, (total + grain - 1) / std::max<std::int64_t>(1, grain));
    if (wanted <= 1) return f(ctx, 0, total);
    const std::lock_guard<std::mutex> call(calls);
    {
      const std::lock_guard<std::mutex> lock(mutex);
      body = f;
      context = ctx;
      count = total;
      chunk = (total + wanted - 1) / wanted;
      busy = static_cast<int>(workers.size());
      ++generation;
    }
    wake.notify_all();
    run_range(0);
    std::unique_lock<std::mutex> lock(mutex);
    done.wait(lock, [&] { return busy == 0; });
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  for (int i = 1; i < threads; ++i) impl_->workers.emplace_back([pool = impl_.get(), i] { pool->work(i); });
}

ThreadPool::~ThreadPool() = default;

Parallel ThreadPool::parallel() {
  return {[](void* pool, std::int64_t count, std::int64_t grain, Parallel::Body body, void* context) {
            static_cast<Impl*>(pool)->run(count, grain, body, context);
          },
          impl_.get(), static_cast<int>(impl_->workers.size()) + 1};
}

}  // namespace bie::kernels
