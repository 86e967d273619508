// The pool's loops: every index once, no more ranges than asked for, on as many threads as promised.
#include "bie/kernels/parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cpu/panels.h"
#include "thread_watch.h"

namespace bie::kernels::test {
namespace {

using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;

Ranges ranges_of(const Parallel& parallel, std::int64_t count, std::int64_t grain) {
  std::mutex mutex;
  Ranges ranges;
  parallel_for(parallel, count, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::lock_guard<std::mutex> lock(mutex);
    ranges.push_back({begin, end});
  });
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

TEST(Parallel, RangesCoverEveryIndexOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (const std::int64_t count : {1, 2, 3, 7, 8, 100, 1001})
      for (const std::int64_t grain : {1, 2, 3, 7, 64, 5000}) {
        const Ranges ranges = ranges_of(pool.parallel(), count, grain);
        SCOPED_TRACE(testing::Message() << threads << " threads, " << count << " by " << grain);
        std::int64_t next = 0;
        for (const auto& [begin, end] : ranges) {
          EXPECT_EQ(begin, next);
          EXPECT_LT(begin, end);
          next = end;
        }
        EXPECT_EQ(next, count);
        EXPECT_LE(std::ssize(ranges), threads);
        EXPECT_LE(std::ssize(ranges), (count + grain - 1) / grain) << "so small a loop is not worth so many ranges";
      }
  }
}

TEST(Parallel, AnEmptyLoopCallsNobody) {
  ThreadPool pool(2);
  for (const std::int64_t count : {0, -1}) {
    EXPECT_TRUE(ranges_of(pool.parallel(), count, 1).empty());
    EXPECT_TRUE(ranges_of(serial(), count, 1).empty());
  }
}

TEST(Parallel, SerialIsOneRangeOnTheCallingThread) {
  EXPECT_EQ(serial().threads, 1);
  EXPECT_EQ(ranges_of(serial(), 1001, 1), (Ranges{{0, 1001}}));
  std::thread::id ran;
  parallel_for(serial(), 5, 1, [&](std::int64_t, std::int64_t) { ran = std::this_thread::get_id(); });
  EXPECT_EQ(ran, std::this_thread::get_id());
}

TEST(Parallel, APoolOfNRunsOnNThreadsAndTheCallerIsOne) {
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.parallel().threads, threads);
    ThreadWatch watch(pool.parallel());
    std::atomic<int> on_caller{0};
    const std::thread::id caller = std::this_thread::get_id();
    parallel_for(watch.parallel(), 100, 1,
                 [&](std::int64_t, std::int64_t) { on_caller += std::this_thread::get_id() == caller; });
    EXPECT_EQ(watch.threads_of_loops(), (std::vector<std::size_t>{static_cast<std::size_t>(threads)}));
    EXPECT_EQ(on_caller.load(), 1);
  }
}

TEST(Parallel, ALoopWithinOneGrainStaysOnTheCallingThread) {
  ThreadPool pool(3);
  const std::thread::id caller = std::this_thread::get_id();
  parallel_for(pool.parallel(), 64, 64, [&](std::int64_t begin, std::int64_t end) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 64);
  });
}

TEST(Parallel, ALoopReturnsAfterItsLastBody) {
  ThreadPool pool(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int> hits(17, 0);  // plain ints: a body that outlives its loop is a race a sanitizer would see
    parallel_for(pool.parallel(), 17, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++hits[static_cast<std::size_t>(i)];
    });
    ASSERT_EQ(hits, std::vector<int>(17, 1)) << "round " << round;
  }
}

TEST(Parallel, TwoCallersShareAPool) {
  ThreadPool pool(2);
  const auto sum_often = [&pool] {
    for (int round = 0; round < 500; ++round) {
      std::atomic<std::int64_t> sum{0};
      parallel_for(pool.parallel(), 100, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) sum += i;
      });
      ASSERT_EQ(sum.load(), 4950);
    }
  };
  std::thread other(sum_often);
  sum_often();
  other.join();
}

TEST(ThreadTeam, PartsCoverEveryIndexOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadTeam team(threads);
    EXPECT_EQ(team.parallel().threads, threads);
    for (const std::int64_t count : {1, 2, 3, 7, 8, 100, 1001})
      for (const std::int64_t grain : {1, 2, 3, 7, 64, 5000}) {
        const Ranges ranges = ranges_of(team.parallel(), count, grain);
        SCOPED_TRACE(testing::Message() << threads << " threads, " << count << " by " << grain);
        std::int64_t next = 0;
        for (const auto& [begin, end] : ranges) {
          EXPECT_EQ(begin, next);
          EXPECT_LT(begin, end);
          next = end;
        }
        EXPECT_EQ(next, count);
        EXPECT_LE(std::ssize(ranges), (count + grain - 1) / grain) << "so small a loop is not worth so many parts";
      }
  }
}

TEST(ThreadTeam, LoopsEndWithTheirLastPartAwakeAndAsleep) {
  ThreadTeam team(4);
  for (int round = 0; round < 3000; ++round) {
    std::vector<int> hits(37, 0);  // plain ints: a part that outlives its loop is a race a sanitizer would see
    parallel_for(team.parallel(), 37, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++hits[static_cast<std::size_t>(i)];
    });
    ASSERT_EQ(hits, std::vector<int>(37, 1)) << "round " << round;
    if (round % 300 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));  // all fall asleep
  }
}

TEST(ThreadTeam, OthersTakeParts) {
  // A part that waits until another thread has come ends only where another thread comes.
  ThreadTeam team(2);
  std::mutex mutex;
  std::set<std::thread::id> seen;
  parallel_for(team.parallel(), 8, 1, [&](std::int64_t, std::int64_t) {
    for (bool both = false; !both; std::this_thread::yield()) {
      const std::lock_guard<std::mutex> lock(mutex);
      seen.insert(std::this_thread::get_id());
      both = seen.size() == 2;
    }
  });
  EXPECT_EQ(seen.size(), 2u);
}

TEST(ThreadTeam, TwoCallersTakeTurns) {
  ThreadTeam team(2);
  const auto sum_often = [&team] {
    for (int round = 0; round < 500; ++round) {
      std::atomic<std::int64_t> sum{0};
      parallel_for(team.parallel(), 100, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) sum += i;
      });
      ASSERT_EQ(sum.load(), 4950);
    }
  };
  std::thread other(sum_often);
  sum_often();
  other.join();
}

// Every block meets every panel once, and of few blocks each thread has as many as the others.
TEST(WorkOrder, IsAPermutationThatThreadsShareEvenly) {
  for (std::int64_t blocks = 1; blocks <= 9; ++blocks)
    for (std::int64_t panels = 1; panels <= 9; ++panels)
      for (std::int64_t threads = 1; threads <= 4; ++threads) {
        const cpu::WorkOrder order(blocks, panels, threads);
        ASSERT_EQ(order.count(), blocks * panels);
        std::set<std::pair<std::int64_t, std::int64_t>> met;
        std::vector<std::int64_t> last_blocks(static_cast<std::size_t>(threads));
        for (std::int64_t i = 0; i < order.count(); ++i) {
          const auto [block, panel] = order.item(i);
          ASSERT_TRUE(block >= 0 && block < blocks && panel >= 0 && panel < panels);
          EXPECT_TRUE(met.insert({block, panel}).second) << block << ", " << panel;
          if (block == blocks - 1) ++last_blocks[static_cast<std::size_t>(i * threads / order.count())];
        }
        if (panels % threads != 0 || blocks >= 4 * threads) continue;
        for (const std::int64_t count : last_blocks) EXPECT_EQ(count, panels / threads) << blocks << ", " << threads;
      }
}

}  // namespace
}  // namespace bie::kernels::test
