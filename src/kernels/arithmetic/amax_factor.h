// The factor that takes an array to integer codes by its largest element. constexpr, so that CUDA kernels call it too.
#pragma once

namespace bie::kernels {

/// code = rint(v * lift * by) where v * lift is exact and by = bound / (amax * lift): bound / amax alone is beyond
/// float32 for an amax next to nothing. by is 0 for an amax of 0: every code is.
struct AmaxFactor {
  float lift, by;
};

static constexpr AmaxFactor amax_factor(float bound, float amax) {
  const float lift = amax < 0x1p-100f ? 0x1p64f : 1.0f;
  return {lift, amax == 0 ? 0.0f : bound / (amax * lift)};
}

}  // namespace bie::kernels
