// The arrangement of a weight that a kernel wants, derived from tensors and stale once one of them changes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

#include "bie/layers/seen.h"

namespace bie::layers {

/// Thread-safe.
class Panels {
 public:
  /// Returns the panels that `make()` derives from the sources, made again when a source has changed. Undefined sources
  /// are left out.
  template <class Make>
  at::Tensor current(std::vector<at::Tensor> sources, const Make& make) {
    sources.erase(std::remove_if(sources.begin(), sources.end(), [](const at::Tensor& t) { return !t.defined(); }),
                  sources.end());
    const std::lock_guard lock(derived_);
    if (!panels_.defined() || !std::equal(seen_.begin(), seen_.end(), sources.begin(), sources.end())) {
      const c10::InferenceMode off(false);  // of inference mode they could not be saved for a backward pass
      const at::NoGradGuard no_grad;
      panels_ = make();
      seen_.clear();
      for (const at::Tensor& source : sources) seen_.emplace_back(source);
    }
    return panels_;
  }

  void forget() {
    const std::lock_guard lock(derived_);
    panels_ = at::Tensor();
    seen_.clear();
  }

  std::int64_t bytes() const { return panels_.defined() ? static_cast<std::int64_t>(panels_.nbytes()) : 0; }

 private:
  std::mutex derived_;
  at::Tensor panels_;
  std::vector<Seen> seen_;
};

}  // namespace bie::layers
