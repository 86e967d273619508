#include "cli/net_main/serve/engine.h"

#include <utility>

namespace bie::cli {

Engine::Engine(Schedulers schedulers) : schedulers_(std::move(schedulers)), thread_([this] { run(); }) {}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  asked_.notify_one();
  thread_.join();
}

void Engine::post(std::function<void(const Schedulers&)> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  asked_.notify_one();
}

void Engine::post(std::size_t scheduler, std::function<void(llm::Scheduler&)> task) {
  post([scheduler, task = std::move(task)](const Schedulers& all) { task(*all[scheduler]); });
}

void Engine::run() {
  std::size_t idle = 0;  // schedulers, one after the other, that had nothing to do
  for (std::size_t turn = 0;; turn = (turn + 1) % schedulers_.size()) {
    std::vector<std::function<void(const Schedulers&)>> tasks;
    {
      std::unique_lock lock(mutex_);
      if (idle == schedulers_.size()) asked_.wait(lock, [this] { return is_over_ || !tasks_.empty(); });
      if (is_over_) return;
      tasks.swap(tasks_);
    }
    if (!tasks.empty()) idle = 0;
    for (const auto& task : tasks) task(schedulers_);
    idle = schedulers_[turn]->pass() ? 0 : idle + 1;
  }
}

}  // namespace bie::cli
