// Tensors of what the readers of files return.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "bie/formats/array.h"

namespace bie::data {

/// Makes tensors that are views of arrays' bytes. Arrays that share bytes give tensors that share a storage.
class Tensors {
 public:
  at::Tensor of(const formats::Array& array);

 private:
  std::map<const formats::Bytes*, at::Storage> storages_;
};

inline at::Tensor tensor_of(const formats::Array& array) { return Tensors().of(array); }

/// The element of a dtype that files can hold; a ValueError beginning with `what` for any other.
formats::Element element_of(const std::string& what, at::ScalarType type);

}  // namespace bie::data
