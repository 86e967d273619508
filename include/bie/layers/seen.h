// Staleness of derived tensors: a derived tensor is stale once its source was written to.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace bie::layers {

/// A tensor as it was when something was derived from it. Its memory is held, so that no other gets the address.
class Seen {
 public:
  Seen() = default;
  explicit Seen(const at::Tensor& tensor)
      : tensor_(tensor),
        memory_(tensor.storage()),
        data_(tensor.const_data_ptr()),
        version_(tensor.is_inference() ? 0 : static_cast<std::uint32_t>(tensor._version())) {}

  /// Whether it is that tensor, unchanged. Never for one of inference mode, which counts no versions.
  bool operator==(const at::Tensor& tensor) const {
    return tensor_.defined() && tensor_.is_same(tensor) && !tensor.is_inference() && data_ == tensor.const_data_ptr() &&
           version_ == static_cast<std::uint32_t>(tensor._version());
  }

 private:
  at::Tensor tensor_;
  c10::Storage memory_;
  const void* data_ = nullptr;
  std::uint32_t version_ = 0;
};

}  // namespace bie::layers
