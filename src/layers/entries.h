// The entries of a state dict that a layer takes, each by the rule of its key.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <string>

#include "bie/layers/quant_layer.h"
#include "bie/ops/weight_rules.h"

namespace bie::layers {

/// Takes a layer's entries out of a state dict. Refusals name the entry.
class Entries {
 public:
  Entries(StateDict& entries, const std::string& prefix) : entries_(entries), prefix_(prefix) {}

  std::string name(const char* key) const { return "the entry '" + prefix_ + key + "'"; }
  bool has(const char* key) const { return entries_.count(prefix_ + key) > 0; }

  /// Takes an entry without checks.
  at::Tensor take(const char* key) {
    const auto found = entries_.find(prefix_ + key);
    TORCH_CHECK_VALUE(found != entries_.end(), name(key), " is missing");
    const at::Tensor tensor = found->second.detach();
    entries_.erase(found);
    return tensor;
  }
  /// Takes an entry after ops::check_entry.
  at::Tensor take(const char* key, at::IntArrayRef shape, at::ScalarType dtype) {
    const at::Tensor tensor = take(key);
    ops::check_entry(tensor, shape, dtype, name(key));
    return tensor;
  }
  /// Drops an entry that files have and no layer needs.
  void pass_over(const char* key) { entries_.erase(prefix_ + key); }

 private:
  StateDict& entries_;
  const std::string& prefix_;
};

}  // namespace bie::layers
