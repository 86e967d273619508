// Weights of packed codes in the device's memory, and their panels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "bie/kernels/cuda/weight_only.h"
#include "tests/kernels/cuda/device_memory.h"
#include "tests/kernels/weight_only_cases.h"

#define BIE_NEEDS_WEIGHT_ONLY() \
  BIE_NEEDS_GPU();              \
  if (this_gpu().sm < 80) GTEST_SKIP() << "panels of packed codes want sm_80"

namespace bie::kernels::test {

/// A weight in the device's memory.
struct DeviceWeight {
  const WeightCase& host;
  DeviceBytes words, scales, float_zeros, whole_zeros, group_of, input_of;

  explicit DeviceWeight(const WeightCase& w)
      : host(w),
        words(w.words),
        scales(w.scales.bytes),
        float_zeros(w.float_zeros.bytes),
        whole_zeros(w.whole_zeros),
        group_of(w.group_of),
        input_of(w.input_of) {}

  PackedWeight packed() const {
    PackedWeight p = host.packed();
    p.words = words.as<std::uint32_t>();
    p.scales = scales.get();
    p.zeros = p.zeros == nullptr ? nullptr : host.offset == Offset::value ? float_zeros.get() : whole_zeros.get();
    p.group_of = group_of.as<std::int32_t>();
    p.input_of = host.input_of.empty() ? nullptr : input_of.as<std::int32_t>();
    return p;
  }
};

struct Arranged {
  cuda::WeightOnlyPlan plan;
  std::unique_ptr<DeviceBytes> panels;
  std::vector<std::int32_t> rows;  ///< of slots, or -1
};

inline int most_bits(const WeightCase& w) {
  int most = 1;
  for (const BitRun& run : w.runs) most = std::max(most, run.bits);
  return most;
}

/// Panels of rows as they lie, of groups of `size` rows.
inline Arranged ordered(const DeviceWeight& w, std::int64_t size, bool int8 = false) {
  const WeightCase& c = w.host;
  cuda::WeightOnlyPlan plan = cuda::ordered_plan(c.k, c.n, size, most_bits(c), c.offset, c.scales.dtype);
  plan.int8 = int8;
  Arranged made{plan, std::make_unique<DeviceBytes>(static_cast<std::size_t>(cuda::weight_only_panel_bytes(plan))), {}};
  for (std::int64_t slot = 0; slot < 32 * plan.chunks; ++slot)
    made.rows.push_back(slot < c.k ? static_cast<std::int32_t>(slot) : -1);
  EXPECT_EQ(cuda::weight_only_prepack(w.packed(), plan, {nullptr, nullptr}, made.panels->get(), default_queue),
            Status::ok);
  EXPECT_TRUE(device_is_well());
  return made;
}

/// Panels of rows in slots of their own, every chunk of 32 of one group.
inline Arranged in_slots(const DeviceWeight& w, bool int8 = false) {
  const WeightCase& c = w.host;
  std::vector<std::int32_t> rows, groups;
  for (std::int32_t g = 0; g < c.groups; ++g) {
    for (std::int64_t i = 0; i < c.k; ++i)
      if (c.group_of[static_cast<std::size_t>(i)] == g) {
        if (rows.size() % 32 == 0) groups.push_back(g);
        rows.push_back(static_cast<std::int32_t>(i));
      }
    while (rows.size() % 32 != 0) rows.push_back(-1);
  }
  cuda::WeightOnlyPlan plan =
      cuda::slot_plan(c.k, c.n, static_cast<std::int64_t>(groups.size()), 1, most_bits(c), c.offset, c.scales.dtype);
  plan.int8 = int8;
  const DeviceBytes row(rows), group(groups);
  Arranged made{plan, std::make_unique<DeviceBytes>(static_cast<std::size_t>(cuda::weight_only_panel_bytes(plan))),
                rows};
  EXPECT_EQ(cuda::weight_only_prepack(w.packed(), plan, {row.as<std::int32_t>(), group.as<std::int32_t>()},
                                      made.panels->get(), default_queue),
            Status::ok);
  EXPECT_TRUE(device_is_well());
  return made;
}

/// Every so many results of a large product of m rows are compared: each takes k additions in float64.
inline std::int64_t checked_every(std::int64_t m, const WeightCase& w) { return 1 + m * w.n * w.k / (1 << 23); }

}  // namespace bie::kernels::test
