// Numbers of arrays as floats.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "bie/formats/array.h"
#include "kernels/arithmetic/float_bits.h"

namespace bie::weights {

/// Of float32, float16 and bfloat16.
inline kernels::Dtype dtype_of(formats::Element element) {
  return element == formats::Element::f32   ? kernels::Dtype::f32
         : element == formats::Element::f16 ? kernels::Dtype::f16
                                            : kernels::Dtype::bf16;
}

inline float float_at(const formats::Array& array, std::int64_t index) {
  return kernels::load_float(array.bytes->data, dtype_of(array.element), array.offset + index);
}

/// All numbers of a dense array.
inline std::vector<float> floats_of(const formats::Array& array) {
  std::vector<float> values(static_cast<std::size_t>(array.count()));
  for (std::int64_t i = 0; i < array.count(); ++i) values[static_cast<std::size_t>(i)] = float_at(array, i);
  return values;
}

inline std::shared_ptr<const float[]> shared_floats(const formats::Array& array) {
  const std::vector<float> values = floats_of(array);
  const std::shared_ptr<float[]> copy(new float[values.size()]);
  std::copy(values.begin(), values.end(), copy.get());
  return copy;
}

}  // namespace bie::weights
