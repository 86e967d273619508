#include "runtime/memory_plan.h"

#include <algorithm>
#include <utility>

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
  std::vector<bool> is_output(plan.values.size());
  for (const std::uint32_t value : outputs) is_output[value] = true;
  std::vector<Life> lives;
  for (std::size_t i = 0; i < plan.works.size(); ++i)
    for (const std::uint32_t value : plan.works[i].writes) {
      if (is_output[value]) continue;
      const std::int64_t bytes = batch * bytes_of(plan.values[value]);
      if (bytes > most) throw formats::Error("a pass of the net wants more memory than there is");
      lives.push_back({value, (bytes + 63) / 64 * 64, i, std::max(last[value], i)});
    }
  return lives;
}

/// Lives over a time of `works`, as a tree of halves: each stands at the largest parts that it covers.
class Timeline {
 public:
  explicit Timeline(std::size_t works) {
    while (size_ < works) size_ *= 2;
    parts_.resize(2 * size_);
    below_.resize(2 * size_);
  }

  void add(const Life& life) { add(1, 0, size_ - 1, life); }

  /// Calls visit(life) for all that share a work with this one; for some more than once.
  template <class Visit>
  void each_beside(const Life& life, const Visit& visit) const {
    visit_part(1, 0, size_ - 1, life, visit);
  }

 private:
  void add(std::size_t part, std::size_t first, std::size_t last, const Life& life) {
    if (life.last < first || last < life.first) return;
    below_[part] = true;
    if (life.first <= first && last <= life.last) return parts_[part].push_back(&life);
    const std::size_t middle = first + (last - first) / 2;
    add(2 * part, first, middle, life);
    add(2 * part + 1, middle + 1, last, life);
  }

  template <class Visit>
  void visit_part(std::size_t part, std::size_t first, std::size_t last, const Life& life, const Visit& visit) const {
    if (life.last < first || last < life.first || !below_[part]) return;
    for (const Life* other : parts_[part]) visit(*other);
    if (first == last) return;
    const std::size_t middle = first + (last - first) / 2;
    visit_part(2 * part, first, middle, life, visit);
    visit_part(2 * part + 1, middle + 1, last, life, visit);
  }

  std::size_t size_ = 1;
  std::vector<std::vector<const Life*>> parts_;
  std::vector<bool> below_;  ///< whether a life stands at this part or at one of it
};

}  // namespace

MemoryPlan plan_memory(const Plan& plan, const std::vector<std::uint32_t>& outputs, std::int64_t batch) {
  std::vector<Life> lives = lives_of(plan, outputs, batch);
  // The largest first, each at the lowest place that no other one has at the same time.
  std::stable_sort(lives.begin(), lives.end(), [](const Life& a, const Life& b) { return a.bytes > b.bytes; });
  MemoryPlan memory{std::vector<std::int64_t>(plan.values.size(), -1), 0};
  Timeline placed(plan.works.size());
  std::vector<std::pair<std::int64_t, std::int64_t>> taken;  // begin and end of what lives beside one
  for (const Life& life : lives) {
    taken.clear();
    placed.each_beside(life, [&](const Life& other) {
      const std::int64_t begin = memory.offsets[other.value];
      taken.emplace_back(begin, begin + other.bytes);
    });
    std::sort(taken.begin(), taken.end());
    std::int64_t at = 0;
    for (const auto& [begin, end] : taken) {
      if (at + life.bytes <= begin) break;
      at = std::max(at, end);
    }
    memory.offsets[life.value] = at;
    memory.bytes = std::max(memory.bytes, at + life.bytes);
    placed.add(life);
  }
  return memory;
}

}  // namespace bie::runtime
