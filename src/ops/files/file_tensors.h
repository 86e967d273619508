// Tensors over what the readers of files return, and their errors as torch's.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "bie/formats/array.h"
#include "bie/formats/error.h"

namespace bie::ops {

/// Returns action(), with formats::Error rethrown as a c10::ValueError of the same sentence.
template <class Action>
auto with_file_errors(const Action& action) {
  try {
    return action();
  } catch (const formats::Error& error) {
    C10_THROW_ERROR(ValueError, error.what());
  }
}

/// uint8 over the bytes, which it keeps alive.
inline at::Tensor bytes_tensor(const std::shared_ptr<const formats::Bytes>& bytes) {
  return at::from_blob(
      bytes->data, {bytes->size}, [bytes](void*) {}, at::TensorOptions().dtype(at::kByte));
}

/// A dense tensor over the vector's memory.
template <class T>
at::Tensor tensor_of(std::vector<T> values, at::ScalarType type, at::IntArrayRef sizes) {
  const auto owner = std::make_shared<std::vector<T>>(std::move(values));
  return at::from_blob(
      owner->data(), sizes, [owner](void*) {}, at::TensorOptions().dtype(type));
}

}  // namespace bie::ops
