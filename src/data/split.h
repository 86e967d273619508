// Rows of one heap, told apart for training and for another purpose.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "bie/data/dataset.h"

namespace bie::data {

/// Indices of rows, int64, each in the order of the heap.
struct Split {
  at::Tensor train, other;
};

/// Per label (over all rows, if the labels are no classes): moves `share` of the rows, at equal distances, to `other`.
/// With 0.2 every fifth row goes there.
/// @param purpose  "testing"
/// @throws c10::ValueError that begins with `what` where one of the two would be empty.
Split split_rows(const at::Tensor& labels, double share, const std::string& what, const char* purpose);

/// Makes a share of the training rows the validation rows.
void set_aside_validation(Dataset& data, double share);

}  // namespace bie::data
