#include "bie/formats/array.h"

#include <algorithm>
#include <utility>

namespace bie::formats {

std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<std::int64_t>(sizes[i], 1);
  return strides;
}

bool dense_bytes(Element element, const std::vector<std::int64_t>& sizes, std::int64_t* bytes) {
  *bytes = size_of(element);
  bool overflow = false, empty = false;
  for (const std::int64_t size : sizes) {
    overflow |= __builtin_mul_overflow(*bytes, std::max<std::int64_t>(size, 1), bytes);
    empty |= size == 0;
  }
  if (empty) *bytes = 0;
  return !overflow;
}

Array array_of(Element element, std::vector<std::int64_t> sizes, std::vector<std::uint8_t> bytes) {
  const auto owner = std::make_shared<std::vector<std::uint8_t>>(std::move(bytes));
  const auto size = static_cast<std::int64_t>(owner->size());
  std::vector<std::int64_t> strides = dense_strides(sizes);
  return {element, std::move(sizes), std::move(strides), 0, std::make_shared<Bytes>(Bytes{owner->data(), size, owner})};
}

bool are_bools(const std::uint8_t* bytes, std::int64_t count) {
  return std::all_of(bytes, bytes + count, [](std::uint8_t b) { return b <= 1; });
}

}  // namespace bie::formats
