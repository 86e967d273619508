#include "data/split.h"

#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <map>
#include <vector>

namespace bie::data {

Dataset split_rows(const at::Tensor& images, const at::Tensor& labels, double share, const std::string& what) {
  TORCH_CHECK_VALUE(share > 0 && share < 1, what, ": the share of test rows is ", share, ", between 0 and 1 is wanted");
  const auto tests = [share](std::int64_t rows) {  // how many of the first `rows` of a class
    return std::floor(static_cast<double>(rows) * share + 1e-9);
  };
  std::map<std::int64_t, std::int64_t> seen;
  std::vector<std::int64_t> train, test;
  const bool classes = labels.scalar_type() == at::kLong;
  const auto* label = classes ? labels.const_data_ptr<std::int64_t>() : nullptr;
  for (std::int64_t i = 0; i < labels.size(0); ++i) {
    const std::int64_t rows = ++seen[classes ? label[i] : 0];
    (tests(rows) > tests(rows - 1) ? test : train).push_back(i);
  }
  TORCH_CHECK_VALUE(!test.empty() && !train.empty(), what, ": a share of ", share, " of the rows of ",
                    classes ? "a class" : "the table", " is for testing, and no ", classes ? "class" : "table",
                    " has enough rows");
  const at::Tensor train_rows = at::tensor(train), test_rows = at::tensor(test);
  Dataset data;
  data.train_images = images.index_select(0, train_rows);
  data.train_labels = labels.index_select(0, train_rows);
  data.test_images = images.index_select(0, test_rows);
  data.test_labels = labels.index_select(0, test_rows);
  return data;
}

}  // namespace bie::data
