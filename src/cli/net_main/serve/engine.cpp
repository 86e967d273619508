#include "cli/net_main/serve/engine.h"

#include <utility>

namespace bie::cli {

Engine::Engine(std::unique_ptr<llm::Scheduler> scheduler)
    : scheduler_(std::move(scheduler)), thread_([this] { run(); }) {}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  asked_.notify_one();
  thread_.join();
}

void Engine::post(std::function<void(llm::Scheduler&)> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  asked_.notify_one();
}

void Engine::run() {
  for (bool has_work = false;;) {
    std::vector<std::function<void(llm::Scheduler&)>> tasks;
    {
      std::unique_lock lock(mutex_);
      if (!has_work) asked_.wait(lock, [this] { return is_over_ || !tasks_.empty(); });
      if (is_over_) return;
      tasks.swap(tasks_);
    }
    for (const auto& task : tasks) task(*scheduler_);
    has_work = scheduler_->pass();
  }
}

}  // namespace bie::cli
