// Codes in 32-bit words, dense along an axis, the first in the lowest bits: on any device, by torch's operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace bie::ops {

/// `size` unsigned codes of 1 ... 8 bits along axis `dim` of int32 words; int32.
at::Tensor unpacked_words(const at::Tensor& words, std::int64_t bits, std::int64_t size, std::int64_t dim);

/// The words of int32 codes, of which the lowest bits are taken; pad bits are 0.
at::Tensor packed_words(const at::Tensor& codes, std::int64_t bits, std::int64_t dim);

}  // namespace bie::ops
