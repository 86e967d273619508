#include "bie/formats/written_types.h"

#include <algorithm>
#include <iterator>

#include "bie/formats/error.h"
#include "bie/formats/group_types.h"
#include "formats/lower.h"

namespace bie::formats {
namespace {

/// A type, and what stands in for it where its blocks do not divide a row.
struct Written {
  std::string_view name, next;
};
constexpr Written all[] = {
    {"F32", ""},      {"F16", ""},       {"BF16", ""},     {"Q8_0", "F16"},  {"Q6_K", "Q8_0"}, {"Q5_K", "Q5_1"},
    {"Q5_1", "F16"},  {"Q5_0", "F16"},   {"Q4_K", "Q5_0"}, {"Q4_1", "F16"},  {"Q4_0", "F16"},  {"Q3_K", "Q4_0"},
    {"Q2_K", "Q4_0"}, {"TQ2_0", "Q2_0"}, {"Q2_0", "Q4_0"}, {"Q1_0", "Q2_0"},
};

const GgufType* next_type(const GgufType& type) {
  if (is_group_type(type)) {
    const GgufType* const smaller = group_type(joined("W", type.bits, "G", type.group - group_step));
    return smaller == nullptr ? gguf_type("F16") : smaller;
  }
  const auto* const found =
      std::find_if(std::begin(all), std::end(all), [&](const Written& w) { return w.name == type.name; });
  return gguf_type(found->next);
}

}  // namespace

const GgufType* written_type(std::string_view name) {
  for (const Written& type : all)
    if (lower(std::string(type.name)) == name) return gguf_type(type.name);
  std::string upper(name);
  for (char& c : upper)
    if (c == 'w' || c == 'g') c = c == 'w' ? 'W' : 'G';
  const GgufType* const type = name.starts_with('w') ? group_type(upper) : nullptr;
  return type != nullptr && zero_of(*type) == GroupZero::real ? type : nullptr;
}

std::string written_type_names() {
  std::string names;
  for (const Written& type : all) names += lower(std::string(type.name)) + ", ";
  return names + "wBgG (B bits in groups of G)";
}

std::string name_of_type(const GgufType& type) { return lower(std::string(type.name)); }

const GgufType& fitting_type(const GgufType& type, std::int64_t columns) {
  const GgufType* fitting = &type;
  while (columns % fitting->weights != 0) fitting = next_type(*fitting);
  return *fitting;
}

}  // namespace bie::formats
