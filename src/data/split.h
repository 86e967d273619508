// Training and test rows of data that come as one heap.
#pragma once

#include <ATen/core/Tensor.h>

#include "bie/data/dataset.h"

namespace bie::data {

/// Of each class every fifth row is a test row, the fifth, the tenth and so on, so that the split is the same every
/// time. @param what  names the data in sentences. @throws c10::ValueError where no class has five rows.
/// @return images and labels; the caller fills in the rest.
Dataset split_rows(const at::Tensor& images, const at::Tensor& labels, const std::string& what);

}  // namespace bie::data
