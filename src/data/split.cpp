#include "data/split.h"

#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <map>
#include <vector>

namespace bie::data {

Dataset split_rows(const at::Tensor& images, const at::Tensor& labels, const std::string& what) {
  constexpr std::int64_t every = 5;
  std::map<std::int64_t, std::int64_t> seen;
  std::vector<std::int64_t> train, test;
  const auto* label = labels.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < labels.numel(); ++i) (++seen[label[i]] % every == 0 ? test : train).push_back(i);
  TORCH_CHECK_VALUE(!test.empty(), what, ": every fifth row of a class is for testing, and no class has five");
  const at::Tensor train_rows = at::tensor(train), test_rows = at::tensor(test);
  Dataset data;
  data.train_images = images.index_select(0, train_rows);
  data.train_labels = labels.index_select(0, train_rows);
  data.test_images = images.index_select(0, test_rows);
  data.test_labels = labels.index_select(0, test_rows);
  return data;
}

}  // namespace bie::data
