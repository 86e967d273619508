// The embedded digits; their definitions are written by tools/make_digits.py at build time.
#pragma once

#include <cstdint>

namespace bie::data {

struct EmbeddedImages {
  std::int64_t count;
  const std::uint8_t* images;  ///< [count, 8, 8], values 0 to 16
  const std::uint8_t* labels;  ///< [count], values 0 to 9
};

extern const EmbeddedImages digits_train;
extern const EmbeddedImages digits_test;

}  // namespace bie::data
