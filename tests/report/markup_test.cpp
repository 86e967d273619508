// No value gets out of the place it was written to.
#include "report/markup.h"

#include <gtest/gtest.h>

#include <string>

namespace bie::report::test {
namespace {

using namespace std::string_literals;

TEST(Markup, ClosesWhatItOpened) {
  Markup page;
  page.open("a").open("b", {{"x", "1"}, {"y", "2"}}).text("t").element("c").close().single("img", {{"src", "s"}});
  EXPECT_EQ(page.finish(), R"(<a><b x="1" y="2">t<c></c></b><img src="s"/></a>)");
}

TEST(Markup, EscapesTextsAndAttributes) {
  Markup page;
  page.element("p", {{"title", "\"><script>"}}, "a<b & c>d");
  EXPECT_EQ(page.finish(), "<p title=\"&quot;&gt;&lt;script&gt;\">a&lt;b &amp; c&gt;d</p>");
}

TEST(Markup, KeepsEveryCharacterOfUnicode) {
  for (const char* text :
       {"naïve", "層.重み", "🐝", "\t\n\r", "\u0080", "\u07ff", "\u0800", "\ud7ff", "\ufffd", "\U0010ffff"})
    EXPECT_EQ(escaped(text), text);
}

TEST(Markup, ReplacesWhatIsNoCharacter) {
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(escaped("a\0b"s), "a" + mark + "b");
  EXPECT_EQ(escaped("\x1b[31m"), mark + "[31m");
  EXPECT_EQ(escaped("a\xff<"), "a" + mark + "&lt;");
  EXPECT_EQ(escaped("\x80"), mark);
  EXPECT_EQ(escaped("\xc3"), mark);                                   // cut off
  EXPECT_EQ(escaped("\xc3\""), mark + "&quot;");                      // cut off before a quote
  EXPECT_EQ(escaped("\xc0\xbc"), mark + mark);                        // "<" in two bytes
  EXPECT_EQ(escaped("\xe0\x80\xbc"), mark + mark + mark);             // in three
  EXPECT_EQ(escaped("\xed\xa0\x80"), mark + mark + mark);             // half of a surrogate pair
  EXPECT_EQ(escaped("\xef\xbf\xbf"), mark + mark + mark);             // U+FFFF
  EXPECT_EQ(escaped("\xf4\x90\x80\x80"), mark + mark + mark + mark);  // above U+10FFFF
}

}  // namespace
}  // namespace bie::report::test
