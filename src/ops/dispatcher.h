// Between our functions and torch's dispatcher.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

namespace bie::ops {

using OptTensor = std::optional<at::Tensor>;

/// The tensor, or an undefined one.
inline at::Tensor value_or_none(const OptTensor& tensor) { return tensor.has_value() ? *tensor : at::Tensor(); }
/// nullopt for an undefined tensor, which the dispatcher expects.
inline OptTensor none_if_undefined(const at::Tensor& tensor) {
  return tensor.defined() ? OptTensor(tensor) : std::nullopt;
}

/// The dispatcher's entry of a bie operator; look it up once.
template <class Signature>
auto find_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

/// Tells autograd that a kernel has written to the tensor.
inline void bump_version(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

}  // namespace bie::ops
