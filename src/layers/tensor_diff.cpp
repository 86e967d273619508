#include "bie/layers/tensor_diff.h"

#include <c10/util/StringUtil.h>

namespace bie::layers {
namespace {

std::string form_of(const at::Tensor& tensor) { return c10::str(tensor.scalar_type(), " ", tensor.sizes()); }

TensorDiff compare_two(const std::string& name, const at::Tensor& a, const at::Tensor& b) {
  TensorDiff diff{name, TensorDiff::Kind::same, 0, 0, form_of(a), form_of(b)};
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) {
    diff.kind = TensorDiff::Kind::form;
    return diff;
  }
  if (a.equal(b)) return diff;
  diff.kind = TensorDiff::Kind::values;
  diff.share = a.ne(b).to(at::kDouble).mean().item<double>();
  diff.largest = (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
  return diff;
}

}  // namespace

std::vector<TensorDiff> compare(const StateDict& first, const StateDict& second) {
  std::vector<TensorDiff> diffs;
  auto a = first.begin();
  auto b = second.begin();
  while (a != first.end() || b != second.end()) {
    if (b == second.end() || (a != first.end() && a->first < b->first)) {
      diffs.push_back({a->first, TensorDiff::Kind::only_first, 0, 0, form_of(a->second), {}});
      ++a;
    } else if (a == first.end() || b->first < a->first) {
      diffs.push_back({b->first, TensorDiff::Kind::only_second, 0, 0, {}, form_of(b->second)});
      ++b;
    } else {
      diffs.push_back(compare_two(a->first, a->second, b->second));
      ++a;
      ++b;
    }
  }
  return diffs;
}

}  // namespace bie::layers
