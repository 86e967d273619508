#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "bie/kernels/parallel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bie::kernels {
namespace {

constexpr int watching = 4000;              // looks at the state, of some nanoseconds each, before a thread sleeps
constexpr std::int64_t parts_a_thread = 4;  // of a loop: a thread that comes late leaves less to be waited for

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

/// `state` holds the number of the loop, how many parts it has and how many of them are taken. Who takes a part may
/// read what else is said of the loop: the next loop begins when all parts have ended.
struct ThreadTeam::Impl {
  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  /// Also where the system refused a thread after the first ones.
  ~Impl() {
    stopping.store(true, std::memory_order_seq_cst);
    state.fetch_add(std::uint64_t{1} << (2 * part_bits), std::memory_order_seq_cst);  // wakes by its change
    state.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  static constexpr int part_bits = 20;
  static constexpr std::uint64_t part_mask = (std::uint64_t{1} << part_bits) - 1;

  std::mutex calls;  // one loop at a time
  std::vector<std::thread> workers;
  alignas(64) std::atomic<std::uint64_t> state{0};
  alignas(64) std::atomic<std::int64_t> ended{0};
  std::atomic<int> asleep{0};
  std::atomic<bool> stopping{false};
  Parallel::Body body = nullptr;
  void* context = nullptr;
  std::int64_t count = 0, chunk = 0;

  static bool has_work(std::uint64_t s) { return (s & part_mask) < (s >> part_bits & part_mask); }

  /// Takes parts of the loop until none is left.
  void take_parts() {
    std::uint64_t s = state.load(std::memory_order_acquire);
    while (has_work(s)) {
      if (!state.compare_exchange_weak(s, s + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      const std::int64_t begin = static_cast<std::int64_t>(s & part_mask) * chunk;
      body(context, begin, std::min(count, begin + chunk));
      ended.fetch_add(1, std::memory_order_acq_rel);
      s = state.load(std::memory_order_acquire);
    }
  }

  void work() {
    while (!stopping.load(std::memory_order_acquire)) {
      std::uint64_t s = state.load(std::memory_order_acquire);
      for (int i = 0; i < watching && !has_work(s); ++i) {
        pause();
        s = state.load(std::memory_order_acquire);
      }
      if (has_work(s)) {
        take_parts();
        continue;
      }
      asleep.fetch_add(1, std::memory_order_seq_cst);
      if (!stopping.load(std::memory_order_seq_cst)) state.wait(s, std::memory_order_seq_cst);
      asleep.fetch_sub(1, std::memory_order_seq_cst);
    }
  }

  void run(std::int64_t total, std::int64_t grain, Parallel::Body f, void* ctx) {
    const auto threads = static_cast<std::int64_t>(workers.size()) + 1;
    const std::int64_t most = (total + grain - 1) / std::max<std::int64_t>(1, grain);
    if (threads == 1 || most <= 1) return f(ctx, 0, total);
    const std::lock_guard<std::mutex> call(calls);
    body = f;
    context = ctx;
    count = total;
    const std::int64_t parts = std::min(most, threads * parts_a_thread);
    chunk = (total + parts - 1) / parts;
    const auto begun = static_cast<std::uint64_t>((total + chunk - 1) / chunk);
    ended.store(0, std::memory_order_relaxed);
    const std::uint64_t loop = (state.load(std::memory_order_relaxed) >> (2 * part_bits)) + 1;
    state.store(loop << (2 * part_bits) | begun << part_bits, std::memory_order_seq_cst);
    if (asleep.load(std::memory_order_seq_cst) > 0) state.notify_all();
    take_parts();
    for (int i = 0; ended.load(std::memory_order_acquire) != static_cast<std::int64_t>(begun); ++i)
      i < watching ? pause() : std::this_thread::yield();
  }
};

ThreadTeam::ThreadTeam(int threads) : impl_(std::make_unique<Impl>()) {
  for (int i = 1; i < threads; ++i) impl_->workers.emplace_back([team = impl_.get()] { team->work(); });
}

ThreadTeam::~ThreadTeam() = default;

Parallel ThreadTeam::parallel() {
  return {[](void* team, std::int64_t count, std::int64_t grain, Parallel::Body body, void* context) {
            static_cast<Impl*>(team)->run(count, grain, body, context);
          },
          impl_.get(), static_cast<int>(impl_->workers.size()) + 1, 16};
}

}  // namespace bie::kernels
