// How the tensors of two files differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bie/layers/quant_layer.h"

namespace bie::layers {

struct TensorDiff {
  enum class Kind { same, values, form, only_first, only_second };
  std::string name;
  Kind kind;                            ///< form: another shape or dtype
  double share = 0;                     ///< of the elements that differ, for Kind::values
  double largest = 0;                   ///< change of an element, for Kind::values
  std::string first = {}, second = {};  ///< "float32 [3, 4]", where there is one
};

/// One entry per name, in the order of the names.
std::vector<TensorDiff> compare(const StateDict& first, const StateDict& second);

}  // namespace bie::layers
