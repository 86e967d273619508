// Runs a net on one calling thread: holds the memory of the values between the nodes, and worker threads.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"
#include "runtime/memory_plan.h"
#include "runtime/net.h"

namespace bie::runtime {

/// Where a pass ended.
struct RunResult {
  kernels::Status status = kernels::Status::ok;
  std::size_t node = 0;  ///< that refused; `no_node`: the input is at fault
  static constexpr auto no_node = static_cast<std::size_t>(-1);
};

class Runner {
 public:
  /// @param max_batch  samples in one pass at most.
  /// @param given      threads of the caller; null: the context has its own, `threads` of them.
  /// @throws formats::Error, std::bad_alloc, std::system_error
  Runner(std::shared_ptr<const Net> net, std::int64_t max_batch, int threads, const kernels::Parallel* given);

  /// Allocates nothing but what a thread's first pass takes.
  RunResult run(std::int64_t batch, const void* const* inputs, void* const* outputs);

  const Net& net() const { return *net_; }
  std::int64_t bytes() const { return plan_.bytes; }

 private:
  RunResult pass(std::int64_t batch);
  /// The node that writes it.
  std::size_t writer_of(std::uint32_t value) const;
  kernels::Status run_work(const Work& work, std::int64_t batch);
  kernels::Status run_node(std::size_t i, std::int64_t batch);
  kernels::Status run_conv2d(const Work& work, std::int64_t batch);
  kernels::Status run_pool(const Work& work, std::int64_t batch);
  kernels::Conv2dTail tail_of(const Work& work) const;
  /// Whether the channels of a value lie last.
  bool last(std::uint32_t value) const { return net_->plan().last[value]; }
  kernels::ImageLayout layout(std::uint32_t value) const {
    return last(value) ? kernels::ImageLayout::nhwc : kernels::ImageLayout::nchw;
  }
  /// A node that is floats to floats, and one plain loop.
  kernels::Status run_plain(const formats::NetNode& node, std::int64_t batch);
  void* at(std::uint32_t value) const { return places_[value]; }

  std::shared_ptr<const Net> net_;
  std::int64_t pass_batch_;
  MemoryPlan plan_;
  Memory memory_;
  std::vector<void*> places_;  ///< of each value in this pass
  std::unique_ptr<kernels::ThreadPool> pool_;
  kernels::Parallel parallel_;
};

}  // namespace bie::runtime
