// A net of floats in codes of 8 or 4 bits, without training.
#pragma once

#include <cstdint>

#include "bie/formats/net_file.h"

namespace bie::runtime {

struct NetBits {
  int inner = 8;              ///< of the products of floats, 8 or 4
  int first = 32, last = 32;  ///< of the first and the last of them, 32, 8 or 4
};

/// The net with its products of floats as products of codes, neither of them folded. The step of an activation is that
/// with the least mean square of what rounding and clipping change on the samples (kernels/step_search.h), that of a
/// weight the same of each output's row; the output's mean error on the samples is taken off the shift of its channel
/// (Nagel et al. 2019, "Data-Free Quantization", section 4.2). Other nodes stay as they are.
/// @param samples  [count, elements of the net's one input]
/// @throws formats::Error where no product is to have codes, or a weight or a value on the samples is not finite.
formats::NetFile quantised(const formats::NetFile& net, const float* samples, std::int64_t count, const NetBits& bits);

}  // namespace bie::runtime
