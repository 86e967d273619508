#include "data/split.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <map>
#include <vector>

#include "data/room_for_bytes.h"

namespace bie::data {

Split split_rows(const at::Tensor& labels, double share, const std::string& what, const char* purpose) {
  TORCH_CHECK_VALUE(share > 0 && share < 1, what, ": the share of rows for ", purpose,
                    ": expected a number between 0 and 1, got ", share);
  const auto others = [share](std::int64_t rows) {  // how many of the first `rows` of a class
    return std::floor(static_cast<double>(rows) * share + 1e-9);
  };
  std::map<std::int64_t, std::int64_t> seen;
  std::vector<std::int64_t> train, other;
  const bool classes = labels.scalar_type() == at::kLong;
  const auto* label = classes ? labels.const_data_ptr<std::int64_t>() : nullptr;
  for (std::int64_t i = 0; i < labels.size(0); ++i) {
    const std::int64_t rows = ++seen[classes ? label[i] : 0];
    (others(rows) > others(rows - 1) ? other : train).push_back(i);
  }
  TORCH_CHECK_VALUE(!other.empty() && !train.empty(), what, ": a share of ", share, " of the rows of ",
                    classes ? "a class" : "the table", " is for ", purpose, ", and no ", classes ? "class" : "table",
                    " has enough rows");
  return {at::tensor(train), at::tensor(other)};
}

namespace {

at::Tensor rows_of(const at::Tensor& images, const at::Tensor& rows) {
  if (images.scalar_type() != at::kByte) return images.index_select(0, rows);
  std::vector<std::int64_t> sizes = images.sizes().vec();
  sizes[0] = rows.numel();
  at::Tensor chosen = room_for_bytes(sizes);
  return at::index_select_out(chosen, images, 0, rows);
}

}  // namespace

void set_aside_validation(Dataset& data, double share) {
  const Split rows = split_rows(data.train_labels, share, data.name, "validation");
  data.validation_images = rows_of(data.train_images, rows.other);
  data.validation_labels = data.train_labels.index_select(0, rows.other);
  data.train_images = rows_of(data.train_images, rows.train);
  data.train_labels = data.train_labels.index_select(0, rows.train);
}

}  // namespace bie::data
