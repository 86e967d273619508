#include "llm/architectures.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace bie::llm {
namespace {

constexpr Architecture all[] = {
    {"llama", true, false, false, 0},  // mistral and smollm too
    {"qwen2", false, false, false, 0},
    {"qwen3", false, true, false, 0},
    {"gemma3", false, true, true, 6},
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
