// Training and test rows of data that come as one heap.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "bie/data/dataset.h"

namespace bie::data {

/// Of each class a share of the rows are test rows, evenly spaced and the same every time: of a fifth the fifth, the
/// tenth and so on. Targets of a regression are one class.
/// @param what  names the data in sentences. @throws c10::ValueError where no row is left for training or for testing.
/// @return images and labels; the caller fills in the rest.
Dataset split_rows(const at::Tensor& images, const at::Tensor& labels, double share, const std::string& what);

}  // namespace bie::data
