// Files of images that a model is asked about, as tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "bie/formats/samples.h"

namespace bie::data {

/// What formats::load_samples reads, float32 [n, channels, height, width].
/// @throws c10::ValueError, one sentence naming the file.
at::Tensor load_samples(const std::string& path, const formats::SampleForm& form);

}  // namespace bie::data
