// Python's names of GGUF's metadata types.
#pragma once

#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "bie/formats/gguf.h"

namespace bie::ops {

/// In the order of GgufValueType.
inline constexpr const char* gguf_value_names[] = {"uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
                                                   "bool",  "string", "array",  "uint64", "int64",  "float64"};

inline formats::GgufValueType gguf_value_type(const std::string& what, const std::string& name) {
  const auto* found = std::find(std::begin(gguf_value_names), std::end(gguf_value_names), name);
  TORCH_CHECK_VALUE(found != std::end(gguf_value_names) && name != "array", what, ": there is no type ", name);
  return static_cast<formats::GgufValueType>(found - std::begin(gguf_value_names));
}

}  // namespace bie::ops
