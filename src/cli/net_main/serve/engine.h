// The thread that computes: between passes it does what other threads ask of its schedulers.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "bie/llm/scheduler.h"

namespace bie::cli {

/// Schedulers of several models take turns: a pass of one, a pass of the next that has work.
class Engine {
 public:
  using Schedulers = std::vector<std::unique_ptr<llm::Scheduler>>;

  explicit Engine(Schedulers schedulers);
  /// Ends the thread behind the pass that runs.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Has `task` done before the next pass. It must not throw.
  void post(std::function<void(const Schedulers&)> task);
  /// Has it done with one of the schedulers.
  void post(std::size_t scheduler, std::function<void(llm::Scheduler&)> task);

 private:
  void run();

  Schedulers schedulers_;
  std::mutex mutex_;
  std::condition_variable asked_;
  std::vector<std::function<void(const Schedulers&)>> tasks_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace bie::cli
