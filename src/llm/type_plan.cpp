#include "llm/type_plan.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "bie/formats/error.h"

namespace bie::llm {
namespace {

using formats::GgufType;
using formats::joined;

/// Types that are written, and what stands in for one whose blocks do not divide a row: the smallest that is no worse.
struct Choice {
  std::string_view option, type, next;
};
constexpr Choice choices[] = {
    {"f32", "F32", ""},       {"f16", "F16", ""},         {"bf16", "BF16", ""},     {"q8_0", "Q8_0", "f16"},
    {"q6_k", "Q6_K", "q8_0"}, {"q5_k", "Q5_K", "q5_1"},   {"q5_1", "Q5_1", "f16"},  {"q5_0", "Q5_0", "f16"},
    {"q4_k", "Q4_K", "q5_0"}, {"q4_1", "Q4_1", "f16"},    {"q4_0", "Q4_0", "f16"},  {"q3_k", "Q3_K", "q4_0"},
    {"q2_k", "Q2_K", "q4_0"}, {"tq2_0", "TQ2_0", "q2_0"}, {"q2_0", "Q2_0", "q4_0"}, {"q1_0", "Q1_0", "q2_0"},
};

template <class Test>
const Choice* find(const Test& test) {
  const auto* const found = std::find_if(std::begin(choices), std::end(choices), test);
  return found == std::end(choices) ? nullptr : found;
}

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

void Planner::for_each_matrix(const std::function<void(const std::string& name, std::int64_t columns)>& visit) const {
  for (const formats::GgufTensor& tensor : model_.gguf.tensors)
    if (tensor.sizes.size() == 2) visit(tensor.name, tensor.columns());
  for (const auto& [name, layer] : model_.codes) visit(name + ".weight", layer.in_features);
  for (const auto& [name, layer] : model_.ternary) visit(name + ".weight", layer.in_features);
}

void Planner::add_all(Quantized* result) {
  for_each_matrix([&](const std::string& name, std::int64_t columns) { add(name, columns, result); });
  check_all_used(types_.contains(head_name));
}

void Planner::add(const std::string& name, std::int64_t columns, Quantized* result) {
  const GgufType* const asked = asked_for(name);
  if (asked == nullptr)
    model_.fail(joined("the plan has no type for the tensor ", formats::in_quotes(model_.called(name))));
  const GgufType* type = asked;
  while (columns % type->weights != 0) {
    const Choice* const choice = find([&](const Choice& c) { return c.type == type->name; });
    if (!plan_.fit)
      model_.fail(joined("tensor ", formats::in_quotes(model_.called(name)), ": rows of ", columns,
                         " are no whole blocks of ", type->weights, ", as ", type->name, " has them; --fit takes ",
                         choice->next, " or what fits instead, --keep and --embedding another type"));
    type = quantized_type(std::string(choice->next));
  }
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

const GgufType* quantized_type(const std::string& name) {
  const Choice* const found = find([&](const Choice& c) { return c.option == name; });
  return found == nullptr ? nullptr : formats::gguf_type(found->type);
}

std::string quantized_type_names() {
  std::string names;
  for (const Choice& choice : choices) names += (names.empty() ? "" : ", ") + std::string(choice.option);
  return names;
}

}  // namespace bie::llm
