// Whole characters out of bytes that come in any pieces.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bie/text/tokenizer.h"

namespace bie::text {
namespace {

/// Text shown after each piece, and at the end.
std::vector<std::string> shown(const std::vector<std::string>& pieces) {
  CharacterStream stream;
  std::vector<std::string> all;
  for (const std::string& piece : pieces) all.push_back(stream.put(piece));
  all.push_back(stream.end());
  return all;
}

using Texts = std::vector<std::string>;

TEST(CharacterStream, HoldsBackWhatEndsInsideACharacter) {
  EXPECT_EQ(shown({"a\xc3", "\xa9z"}), (Texts{"a", "\xc3\xa9z", ""}));
  EXPECT_EQ(shown({"\xf0", "\x9f", "\x98", "\x80"}), (Texts{"", "", "", "\xf0\x9f\x98\x80", ""}));
  EXPECT_EQ(shown({"\xe4\xbd"}), (Texts{"", "\xe4\xbd"}));
}

TEST(CharacterStream, PassesThroughWhatCanBeNoCharacter) {
  EXPECT_EQ(shown({"\xff", "\xc3", "("}), (Texts{"\xff", "", "\xc3(", ""}));
  EXPECT_EQ(shown({"\xed\xa0"}), (Texts{"\xed\xa0", ""})) << "a surrogate";
  EXPECT_EQ(shown({"\xc0"}), (Texts{"\xc0", ""})) << "a longer form than needed";
  EXPECT_EQ(shown({"\xf4\x90"}), (Texts{"\xf4\x90", ""})) << "above U+10FFFF";
}

TEST(ValidUtf8, ReplacesEachByteOfNoCharacter) {
  EXPECT_EQ(valid_utf8("a\xc3\xa9"), "a\xc3\xa9");
  EXPECT_EQ(valid_utf8("\xff\xe4\xbd"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(valid_utf8(""), "");
}

}  // namespace
}  // namespace bie::text
