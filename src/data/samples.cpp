#include "bie/data/samples.h"

#include <ATen/ops/tensor.h>

#include "data/value_errors.h"

namespace bie::data {

at::Tensor load_samples(const std::string& path, const formats::SampleForm& form) {
  return with_value_errors([&] {
    const formats::Samples samples = formats::load_samples(path, form);
    return at::tensor(samples.values).view({samples.count, form.image[0], form.image[1], form.image[2]});
  });
}

}  // namespace bie::data
