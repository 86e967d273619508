#include "bie/text/tokenizer.h"

#include <gtest/gtest.h>

#include "bie/formats/error.h"
#include "text/utf8.h"

namespace bie::text {
namespace {

using Kind = Vocabulary::Kind;
using Tokens = std::vector<std::int32_t>;

constexpr std::int32_t end_of_turn = 0, tool = 1, space = 2, first_letter = 3;

std::int32_t letter(char c) { return first_letter + (c - '!'); }

/// A control token, a user-defined one, a space and the printable letters, each a token of its own.
Vocabulary letters(Vocabulary::Scheme scheme) {
  const bool is_bytes = scheme == Vocabulary::Scheme::bytes;
  Vocabulary v;
  v.scheme = scheme;
  v.splitter = "gpt-2";
  v.tokens = {"<|end|>", "<tool>", is_bytes ? utf8_of(0x120) : utf8_of(0x2581)};
  v.kinds = {Kind::control, Kind::user_defined, Kind::normal};
  for (char c = '!'; c <= '~'; ++c) {
    v.tokens.emplace_back(1, c);
    v.kinds.push_back(Kind::normal);
  }
  if (!is_bytes) {
    v.tokens.emplace_back("<unk>");
    v.kinds.push_back(Kind::unknown);
    v.scores.assign(v.tokens.size(), 0);
  }
  return v;
}

Tokens letters_of(std::string_view text) {
  Tokens tokens;
  for (const char c : text) tokens.push_back(c == ' ' ? space : letter(c));
  return tokens;
}

Tokens joint(std::initializer_list<Tokens> parts) {
  Tokens all;
  for (const Tokens& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

class EveryScheme : public testing::TestWithParam<Vocabulary::Scheme> {};

INSTANTIATE_TEST_SUITE_P(Tokenizer, EveryScheme,
                         testing::Values(Vocabulary::Scheme::bytes, Vocabulary::Scheme::pieces,
                                         Vocabulary::Scheme::unigram));

TEST_P(EveryScheme, ControlTokensComeFromSpecialPartsAlone) {
  const Tokenizer tokenizer(letters(GetParam()));
  EXPECT_EQ(tokenizer.encode({{"<|end|>", true}, {"a <|end|>", false}, {"<|end|>", true}}),
            joint({{end_of_turn}, letters_of("a <|end|>"), {end_of_turn}}));
  EXPECT_EQ(tokenizer.encode("a<|end|>", false), letters_of("a<|end|>"));
  EXPECT_EQ(tokenizer.encode("a<|end|>"), joint({letters_of("a"), {end_of_turn}}));
}

TEST_P(EveryScheme, AControlTokenNeedsAllOfItsNameInSpecialParts) {
  const Tokenizer tokenizer(letters(GetParam()));
  for (std::size_t at = 1; at < 7; ++at) {
    const std::string_view name = "<|end|>", left = name.substr(0, at), right = name.substr(at);
    EXPECT_EQ(tokenizer.encode({{left, true}, {right, false}}), letters_of(name)) << at;
    EXPECT_EQ(tokenizer.encode({{left, false}, {right, true}}), letters_of(name)) << at;
    EXPECT_EQ(tokenizer.encode({{left, true}, {"", false}, {right, true}}), Tokens{end_of_turn}) << at;
  }
}

TEST_P(EveryScheme, UserDefinedTokensAreFoundInEveryPart) {
  const Tokenizer tokenizer(letters(GetParam()));
  EXPECT_EQ(tokenizer.encode({{"<tool>a", true}, {"b<tool>", false}, {"<to", true}, {"ol>", false}}),
            joint({{tool}, letters_of("ab"), {tool, tool}}));
}

TEST_P(EveryScheme, TextOfNeighboursIsReadAsOne) {
  Vocabulary v = letters(GetParam());
  const auto both = static_cast<std::int32_t>(v.tokens.size());
  v.tokens.emplace_back("ab");
  v.kinds.push_back(Kind::normal);
  if (v.scheme != Vocabulary::Scheme::bytes) v.scores.push_back(1);
  v.merges = {{"a", "b"}};
  EXPECT_EQ(Tokenizer(std::move(v)).encode({{"a", true}, {"b", false}}), Tokens{both});
}

TEST(Tokenizer, GenerationConfigsEndsEndAnswers) {
  Vocabulary v = letters(Vocabulary::Scheme::bytes);
  v.eos = end_of_turn;
  v.ends = {tool, 1 << 30};
  v.before = {space, tool};
  const Tokenizer tokenizer(std::move(v));
  EXPECT_TRUE(tokenizer.is_end(end_of_turn));
  EXPECT_TRUE(tokenizer.is_end(tool));
  EXPECT_FALSE(tokenizer.is_end(space));
  EXPECT_EQ(tokenizer.before(), (Tokens{space, tool}));
  EXPECT_EQ(tokenizer.begin(), space);
}

TEST(Tokenizer, WordsNeedADescription) {
  Vocabulary v = letters(Vocabulary::Scheme::bytes);
  v.scheme = Vocabulary::Scheme::words;
  EXPECT_THROW(Tokenizer{v}, formats::Error);
  v.description = R"({"model": {"type": "WordPiece"}, "pre_tokenizer": {"type": "BertPreTokenizer"}})";
  v.tokens[first_letter] = "##a";
  v.unknown = space;
  EXPECT_EQ(Tokenizer(v).encode("aa a! !"), (Tokens{letter('a'), first_letter, letter('a'), space, space}));
}

TEST(Tokenizer, SpecialTokensAreInRange) {
  Vocabulary v = letters(Vocabulary::Scheme::bytes);
  v.after = {static_cast<std::int32_t>(v.tokens.size())};
  EXPECT_THROW(Tokenizer{v}, formats::Error);
}

}  // namespace
}  // namespace bie::text
