#include "bie/text/thoughts.h"

#include <gtest/gtest.h>

namespace bie::text {
namespace {

using Part = ThoughtStream::Part;
using Parts = std::vector<Part>;

/// The parts of an answer that comes in pieces of `size` bytes, neighbours of one kind joined.
Parts parts_of(std::string_view answer, std::size_t size, bool begins_in_thought = false) {
  ThoughtStream stream(begins_in_thought);
  Parts all;
  const auto take = [&](const Parts& parts) {
    for (const Part& part : parts) {
      EXPECT_FALSE(part.text.empty());
      if (!all.empty() && all.back().is_thought == part.is_thought)
        all.back().text += part.text;
      else
        all.push_back(part);
    }
  };
  for (std::size_t at = 0; at < answer.size(); at += size) take(stream.put(answer.substr(at, size)));
  take(stream.end());
  return all;
}

TEST(ThoughtStream, CutsAtMarksHoweverTheTextComes) {
  for (std::size_t size = 1; size < 40; ++size) {
    EXPECT_EQ(parts_of("<think>\nWhy?\n</think>\n\nSo.", size), (Parts{{"Why?\n", true}, {"So.", false}})) << size;
    EXPECT_EQ(parts_of("a < b <thin <think>c</think>d</think>", size),
              (Parts{{"a < b <thin ", false}, {"c", true}, {"d</think>", false}}))
        << size;
    EXPECT_EQ(parts_of("c</think>\nd<thi", size, true), (Parts{{"c", true}, {"d<thi", false}})) << size;
    EXPECT_EQ(parts_of("<think>\n\n</think>\n\n", size), Parts{}) << size;
  }
}

TEST(ThoughtStream, TellsAtOnceWhatCanBeginNoMark) {
  ThoughtStream stream;
  EXPECT_EQ(stream.put("So <"), (Parts{{"So ", false}}));
  EXPECT_EQ(stream.put("b>"), (Parts{{"<b>", false}}));
}

TEST(EndsInThought, OfPrompts) {
  EXPECT_TRUE(ends_in_thought("<|assistant|><think>\n"));
  EXPECT_FALSE(ends_in_thought("<think>\n\n</think>\n\n"));
  EXPECT_TRUE(ends_in_thought("<think>a</think><think>"));
  EXPECT_FALSE(ends_in_thought(""));
}

}  // namespace
}  // namespace bie::text
