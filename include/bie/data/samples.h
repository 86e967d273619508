// Files of images that a model is asked about, as tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "bie/formats/samples.h"

namespace bie::data {

struct Samples {
  at::Tensor images;       ///< float32 [n, channels, height, width]
  formats::Samples facts;  ///< without the values
};

/// formats::load_samples as tensors. @throws c10::ValueError, one sentence naming the file.
Samples load_samples(const std::string& path, const formats::SampleForm& form);

}  // namespace bie::data
