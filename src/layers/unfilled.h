// How a model is made that a file is to fill.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <mutex>

namespace bie::layers {

/// While one lives, this thread's quantised layers start without a weight: it would be up to 32 times as large as the
/// packed one that takes its place. Float layers draw theirs from torch's global generator, which is put back at the
/// end.
class Unfilled {
 public:
  Unfilled() : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
    wanted_ = true;
  }
  ~Unfilled() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
    wanted_ = false;
  }
  Unfilled(const Unfilled&) = delete;
  Unfilled& operator=(const Unfilled&) = delete;
  static bool wanted() { return wanted_; }

 private:
  static inline thread_local bool wanted_ = false;
  at::Generator generator_;
  at::Tensor state_;
};

}  // namespace bie::layers
