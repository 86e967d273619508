// Types of groups under a sum of bytes.
#include <cstdint>
#include <limits>
#include <vector>

#include "bie/llm/size_plan.h"

namespace bie::llm {
namespace {

/// The least of divergence + price * bytes; of equals the one of fewer bytes.
std::size_t best_at(const std::vector<TypeCost>& costs, double price) {
  std::size_t best = 0;
  const auto total = [&](std::size_t i) { return costs[i].divergence + price * static_cast<double>(costs[i].bytes); };
  for (std::size_t i = 1; i < costs.size(); ++i)
    if (total(i) < total(best) || (total(i) == total(best) && costs[i].bytes < costs[best].bytes)) best = i;
  return best;
}

/// Another type of a group.
struct Change {
  std::size_t group, type;
  std::int64_t bytes;  ///< more than now
  double gain;         ///< of divergence
};

/// One change, or two of which one pays for the other, that gains the most and fits what is left.
/// @return whether there was one.
bool step(const std::vector<std::vector<TypeCost>>& groups, std::int64_t left, std::vector<std::size_t>* chosen) {
  std::vector<Change> changes;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::size_t i = 0; i < groups[g].size(); ++i) {
      const TypeCost &now = groups[g][(*chosen)[g]], &then = groups[g][i];
      if (i != (*chosen)[g]) changes.push_back({g, i, then.bytes - now.bytes, now.divergence - then.divergence});
    }
  const Change none{};
  const Change *first = nullptr, *second = nullptr;
  double best = 0;
  for (const Change& a : changes) {
    if (a.gain <= 0) continue;
    if (a.bytes <= left && a.gain > best) {
      best = a.gain;
      first = &a;
      second = &none;
    }
    if (a.bytes <= left) continue;
    for (const Change& b : changes)
      if (b.group != a.group && a.bytes + b.bytes <= left && a.gain + b.gain > best) {
        best = a.gain + b.gain;
        first = &a;
        second = &b;
      }
  }
  if (first == nullptr) return false;
  (*chosen)[first->group] = first->type;
  if (second != &none) (*chosen)[second->group] = second->type;
  return true;
}

}  // namespace

std::vector<std::size_t> cheapest_types(const std::vector<std::vector<TypeCost>>& groups, std::int64_t bytes) {
  const auto at_price = [&](double price) {
    std::vector<std::size_t> chosen;
    for (const std::vector<TypeCost>& costs : groups) chosen.push_back(best_at(costs, price));
    return chosen;
  };
  const auto bytes_of = [&](const std::vector<std::size_t>& chosen) {
    std::int64_t sum = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) sum += groups[g][chosen[g]].bytes;
    return sum;
  };
  std::vector<std::size_t> chosen = at_price(std::numeric_limits<double>::infinity());
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::size_t i = 0; i < groups[g].size(); ++i)
      if (groups[g][i].bytes < groups[g][chosen[g]].bytes) chosen[g] = i;
  if (bytes_of(chosen) > bytes) return {};
  double low = 0, high = 1;  // prices of a byte
  if (const auto free = at_price(0); bytes_of(free) <= bytes) return free;
  while (bytes_of(at_price(high)) > bytes && high < 1e30) high *= 16;
  constexpr int halvings = 200;
  for (int i = 0; i < halvings; ++i) {
    const double middle = (low + high) / 2;
    (bytes_of(at_price(middle)) > bytes ? low : high) = middle;
  }
  if (const auto found = at_price(high); bytes_of(found) <= bytes) chosen = found;
  while (step(groups, bytes - bytes_of(chosen), &chosen)) {
  }
  return chosen;
}

}  // namespace bie::llm
