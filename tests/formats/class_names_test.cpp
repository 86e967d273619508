// Names of classes in the metadata of nets.
#include "bie/formats/class_names.h"

#include <gtest/gtest.h>

#include "bie/formats/error.h"

namespace bie::formats::test {
namespace {

using Names = std::vector<std::string>;

Names again(const Names& names) {
  auto entries = class_name_entries(names);
  return class_names_of(entries["classes"], entries["class_names"]);
}

TEST(ClassNames, AreWhatTheyWere) {
  for (const Names& names :
       {Names{"a", "b"}, Names{"class\na", "b"}, Names{"", "b", ""}, Names{"a\\n", "\"b\", c"}, Names{}})
    EXPECT_EQ(again(names), names);
}

TEST(ClassNames, OlderReadersStillCountThem) {
  EXPECT_EQ(class_name_entries({"class\na", "b"})["classes"], "class a\nb");
  EXPECT_EQ(class_name_entries({"a", "b"}).size(), 1u) << "plain names are written as ever";
  EXPECT_EQ(class_names_of("a\nb", ""), (Names{"a", "b"}));
  EXPECT_THROW(class_names_of("a", "{}"), Error);
  EXPECT_THROW(class_names_of("a", "[1]"), Error);
}

}  // namespace
}  // namespace bie::formats::test
