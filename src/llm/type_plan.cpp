#include "llm/type_plan.h"

#include <algorithm>
#include <string_view>

#include "bie/formats/error.h"
#include "bie/formats/written_types.h"

namespace bie::llm {
namespace {

using formats::GgufType;
using formats::joined;

/// Whether * and ? of a pattern can stand for what a name has there.
bool fits(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0, star = std::string_view::npos, from = 0;
  while (n < name.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n]) && pattern[p] != '*') {
      ++p;
      ++n;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++from;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace

void Planner::for_each_matrix(const Visit& visit) const {
  for (const formats::GgufTensor& tensor : model_.gguf.tensors)
    if (tensor.sizes.size() == 2) visit(tensor.name, tensor.sizes[0], tensor.sizes[1]);
  for (const auto& [name, layer] : model_.codes) visit(name + ".weight", layer.out_features, layer.in_features);
  for (const auto& [name, layer] : model_.ternary) visit(name + ".weight", layer.out_features, layer.in_features);
}

void Planner::add_all(Quantized* result) {
  for_each_matrix([&](const std::string& name, std::int64_t, std::int64_t columns) { add(name, columns, result); });
  check_all_used(types_.contains(head_name));
}

void Planner::add(const std::string& name, std::int64_t columns, Quantized* result) {
  const GgufType* const asked = asked_for(name);
  if (asked == nullptr)
    model_.fail(joined("the plan has no type for the tensor ", formats::in_quotes(model_.called(name))));
  if (columns % asked->weights != 0 && !plan_.fit)
    model_.fail(joined("tensor ", formats::in_quotes(model_.called(name)), ": rows of ", columns,
                       " are no whole blocks of ", asked->weights, ", as ", asked->name, " has them; --fit takes ",
                       formats::name_of_type(formats::fitting_type(*asked, columns)),
                       ", --keep and --embedding another type"));
  const GgufType* const type = &formats::fitting_type(*asked, columns);
  if (type != asked) result->unfit.emplace_back(name, type->name);
  result->plan.emplace_back(name, type->name);
  types_[name] = type;
}

void Planner::check_all_used(bool has_head) const {
  for (std::size_t i = 0; i < plan_.keep.size(); ++i)
    if (!fitting_[i])
      model_.fail(joined("--keep ", plan_.keep[i].first, ": expected the name of a matrix, got one that fits none"));
  if (plan_.head != nullptr && !has_head)
    model_.fail("--head: expected a model with a head of its own, got one whose head is the embedding");
}

const GgufType& Planner::type_of(const std::string& name) const {
  const auto found = types_.find(name);
  if (found == types_.end()) model_.fail(joined("the tensor ", formats::in_quotes(model_.called(name)), " is missing"));
  return *found->second;
}

const GgufType* Planner::asked_for(const std::string& name) {
  const GgufType* kept = nullptr;
  for (std::size_t i = 0; i < plan_.keep.size(); ++i) {
    if (!fits(plan_.keep[i].first, name)) continue;
    fitting_[i] = true;
    if (kept == nullptr) kept = plan_.keep[i].second;
  }
  if (kept != nullptr) return kept;
  if (name == embedding_name && plan_.embedding != nullptr) return plan_.embedding;
  if (name == head_name && plan_.head != nullptr) return plan_.head;
  return plan_.type;
}

}  // namespace bie::llm
