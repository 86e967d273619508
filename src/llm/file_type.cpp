#include "llm/file_type.h"

#include <cstdint>
#include <string_view>
#include <utility>

namespace bie::llm {

void put_file_type(const std::vector<formats::GgufOutput>& tensors,
                   std::map<std::string, formats::GgufValue>* metadata) {
  constexpr std::pair<const char*, std::uint64_t> numbers[] = {
      {"F32", 0},   {"F16", 1},   {"Q4_0", 2},  {"Q4_1", 3},  {"Q8_0", 7},  {"Q5_0", 8},  {"Q5_1", 9},
      {"Q2_K", 10}, {"Q3_K", 11}, {"Q4_K", 14}, {"Q5_K", 16}, {"Q6_K", 18}, {"BF16", 32}, {"TQ2_0", 37}};
  std::map<std::string_view, std::int64_t> weights;
  for (const formats::GgufOutput& tensor : tensors)
    if (tensor.sizes.size() == 2) weights[tensor.type->name] += tensor.sizes[0] * tensor.sizes[1];
  constexpr const char* key = "general.file_type";
  metadata->erase(key);
  std::int64_t most = 0;
  for (const auto& [name, number] : numbers)
    if (weights[name] > most) {
      most = weights[name];
      (*metadata)[key] = {formats::GgufValueType::u32, number};
    }
}

}  // namespace bie::llm
