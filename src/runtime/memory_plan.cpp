#include "runtime/memory_plan.h"

#include <algorithm>

#include "bie/formats/error.h"
#include "runtime/graph.h"

namespace bie::runtime {
namespace {

struct Life {
  std::uint32_t value;
  std::int64_t bytes;
  std::size_t first, last;  ///< the work that writes it and the last one that reads it
};

std::vector<Life> lives_of(const Plan& plan, const std::vector<std::uint32_t>& outputs, std::int64_t batch) {
  constexpr std::int64_t most = std::int64_t{1} << 46;
  std::vector<std::size_t> last(plan.values.size());
  for (std::size_t i = 0; i < plan.works.size(); ++i)
    for (const std::uint32_t value : plan.works[i].reads) last[value] = i;
  std::vector<Life> lives;
  for (std::size_t i = 0; i < plan.works.size(); ++i)
    for (const std::uint32_t value : plan.works[i].writes) {
      if (std::find(outputs.begin(), outputs.end(), value) != outputs.end()) continue;
      const std::int64_t bytes = batch * bytes_of(plan.values[value]);
      if (bytes > most) throw formats::Error("a pass of the net wants more memory than there is");
      lives.push_back({value, (bytes + 63) / 64 * 64, i, std::max(last[value], i)});
    }
  return lives;
}

}  // namespace

MemoryPlan plan_memory(const Plan& plan, const std::vector<std::uint32_t>& outputs, std::int64_t batch) {
  std::vector<Life> lives = lives_of(plan, outputs, batch);
  // The largest first, each at the lowest place that no other one has at the same time.
  std::stable_sort(lives.begin(), lives.end(), [](const Life& a, const Life& b) { return a.bytes > b.bytes; });
  MemoryPlan memory{std::vector<std::int64_t>(plan.values.size(), -1), 0};
  std::vector<const Life*> placed;  // by place
  for (const Life& life : lives) {
    std::int64_t at = 0;
    for (const Life* other : placed) {
      if (other->last < life.first || life.last < other->first) continue;
      const std::int64_t begin = memory.offsets[other->value];
      if (at + life.bytes <= begin) break;
      at = std::max(at, begin + other->bytes);
    }
    memory.offsets[life.value] = at;
    memory.bytes = std::max(memory.bytes, at + life.bytes);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), at,
                         [&](std::int64_t place, const Life* other) { return place < memory.offsets[other->value]; }),
        &life);
  }
  return memory;
}

}  // namespace bie::runtime
