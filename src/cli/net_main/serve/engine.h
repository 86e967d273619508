// The thread that computes: between passes it does what other threads ask of its scheduler.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "bie/llm/scheduler.h"

namespace bie::cli {

class Engine {
 public:
  explicit Engine(std::unique_ptr<llm::Scheduler> scheduler);
  /// Ends the thread behind the pass that runs.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Has `task` done before the next pass. It must not throw.
  void post(std::function<void(llm::Scheduler&)> task);

 private:
  void run();

  std::unique_ptr<llm::Scheduler> scheduler_;
  std::mutex mutex_;
  std::condition_variable asked_;
  std::vector<std::function<void(llm::Scheduler&)>> tasks_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace bie::cli
