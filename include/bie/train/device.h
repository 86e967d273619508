// The device that a user names.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <string>

namespace bie::train {

/// The device has a name of ours, but this machine does not have it or torch cannot use it.
class MissingDevice : public c10::ValueError {
  using ValueError::ValueError;
};

/// "cpu", "cuda" (the first GPU) or "cuda:N". The first call for a GPU loads torch's CUDA library, which nothing here
/// links; torch looks for it once, so this comes before any other call that asks about GPUs, at::manual_seed's among
/// them. Throws a ValueError for any other name, a MissingDevice where the library or the GPU is missing.
c10::Device device_of(const std::string& name);

}  // namespace bie::train
