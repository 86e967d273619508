// One number that tells whether a file's tensors are the ones that were written.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>

namespace bie::data {

/// CRC-32 (zlib) of `text` and of every tensor's name, dtype, sizes and values, in the order of the names.
std::uint32_t checksum(const std::map<std::string, at::Tensor>& tensors, const std::string& text);

}  // namespace bie::data
