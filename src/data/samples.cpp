#include "bie/data/samples.h"

#include <ATen/ops/tensor.h>

#include <utility>
#include <vector>

#include "data/value_errors.h"

namespace bie::data {

Samples load_samples(const std::string& path, const formats::SampleForm& form) {
  return with_value_errors([&] {
    Samples samples{{}, formats::load_samples(path, form)};
    const std::vector<float> values = std::exchange(samples.facts.values, {});
    samples.images = at::tensor(values).view({samples.facts.count, form.image[0], form.image[1], form.image[2]});
    return samples;
  });
}

}  // namespace bie::data
