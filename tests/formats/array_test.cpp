// Arrays of files: sizes, strides and the bytes they keep.
#include "bie/formats/array.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace bie::formats::test {
namespace {

TEST(Array, ADenseArrayKnowsWhereItsElementsLie) {
  const Array array = array_of(Element::u8, {2, 3, 4}, std::vector<std::uint8_t>(24, 7));
  EXPECT_EQ(array.strides, (std::vector<std::int64_t>{12, 4, 1}));
  EXPECT_EQ(array.count(), 24);
  EXPECT_EQ(array.data<std::uint8_t>()[23], 7);
}

TEST(Array, SizesOfZeroCountAsOneInStridesAndAsNothingInBytes) {
  EXPECT_EQ(dense_strides({2, 0, 4}), (std::vector<std::int64_t>{4, 4, 1}));
  std::int64_t bytes = -1;
  EXPECT_TRUE(dense_bytes(Element::f64, {2, 0, 4}, &bytes));
  EXPECT_EQ(bytes, 0);
}

TEST(Array, SizesWhoseBytesOverflowAreTold) {
  std::int64_t bytes = 0;
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_TRUE(dense_bytes(Element::u8, {most}, &bytes));
  EXPECT_EQ(bytes, most);
  EXPECT_FALSE(dense_bytes(Element::i16, {most}, &bytes));
  EXPECT_FALSE(dense_bytes(Element::u8, {most, 0, 2}, &bytes)) << "strides would overflow";
}

TEST(Array, CopiesShareTheBytesAndKeepThem) {
  Array copy;
  {
    const Array array = array_of(Element::i8, {3}, {1, 2, 255});
    copy = array;
    EXPECT_EQ(copy.bytes, array.bytes);
  }
  EXPECT_EQ(copy.data<std::int8_t>()[2], -1);
}

TEST(Array, EveryElementHasASizeAndAName) {
  EXPECT_EQ(size_of(Element::boolean), 1);
  EXPECT_EQ(size_of(Element::bf16), 2);
  EXPECT_EQ(size_of(Element::f64), 8);
  EXPECT_EQ(name(Element::boolean), "bool");
  EXPECT_EQ(name(Element::f64), "float64");
}

TEST(Array, BoolsAreZerosAndOnes) {
  const std::uint8_t good[] = {0, 1, 1, 0}, bad[] = {0, 2};
  EXPECT_TRUE(are_bools(good, 4));
  EXPECT_FALSE(are_bools(bad, 2));
}

}  // namespace
}  // namespace bie::formats::test
