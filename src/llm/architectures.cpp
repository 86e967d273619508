#include "llm/architectures.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace bie::llm {
namespace {

constexpr Architecture all[] = {
    {.name = "llama", .neighbours = true},  // mistral and smollm too
    {.name = "qwen2"},
    {.name = "qwen3", .head_norms = true},
    {.name = "gemma2",
     .end_norms = true,
     .scales_embedding = true,
     .has_caps = true,
     .activation = Activation::gelu,
     .pattern = 2,
     .window = 4096,
     .by_width = 46},
    {.name = "gemma3",
     .head_norms = true,
     .end_norms = true,
     .scales_embedding = true,
     .activation = Activation::gelu,
     .pattern = 6,
     .turns_windows = true,
     .by_width = 62},
    {.name = "bitnet", .sub_norms = true, .tensor_scales = true},  // 1bitLLM's
    {.name = "bitnet-b1.58", .sub_norms = true, .tensor_scales = true, .activation = Activation::relu2},
};

}  // namespace

const Architecture* architecture(std::string_view name) {
  const auto* const found = std::find_if(std::begin(all), std::end(all), [&](const auto& a) { return a.name == name; });
  return found == std::end(all) ? nullptr : found;
}

std::string_view architecture_names() {
  static const std::string names = [] {
    std::string text;
    for (const Architecture& a : all) text += (text.empty() ? "" : ", ") + std::string(a.name);
    return text;
  }();
  return names;
}

}  // namespace bie::llm
