// Where the time of a classifier goes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bie/models/classifier.h"

namespace bie::train {

struct OperatorTime {
  std::string name;    ///< "bie::binary_linear", "aten::prelu"; "outside of operators" for what is between them
  double calls = 0;    ///< in one forward pass
  double seconds = 0;  ///< of one pass, without those of operators that it calls
};

/// Forward passes over the first `batch` images (repeated as needed) in evaluation mode, the longest operators first.
/// Watching costs each call part of a microsecond, which counts as its own.
/// @throws c10::ValueError for no images, batch or repeats below 1, and for a model that is not on the CPU.
std::vector<OperatorTime> operator_times(models::Classifier& model, const at::Tensor& images, std::int64_t batch,
                                         int repeats);

}  // namespace bie::train
