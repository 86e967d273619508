// Writes vocabularies as files of a folder, reads the folder, and compares the tokens of texts.
#include "bie/text/vocabulary_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "bie/formats/error.h"
#include "bie/text/tokenizer.h"
#include "text/byte_characters.h"
#include "text/split_rules.h"
#include "text/utf8.h"

namespace bie::text {
namespace {

using Kind = Vocabulary::Kind;
using Scheme = Vocabulary::Scheme;
using Tokens = std::vector<std::int32_t>;

std::int32_t add(Vocabulary* v, const std::string& name, Kind kind = Kind::normal, double score = 0) {
  v->tokens.push_back(name);
  v->kinds.push_back(kind);
  if (v->scheme == Scheme::pieces) v->scores.push_back(score);
  return static_cast<std::int32_t>(v->tokens.size()) - 1;
}

/// Random texts of many scripts, with names of tokens between.
class Texts {
 public:
  explicit Texts(unsigned seed) : random_(seed) {}

  std::string next() {
    static const std::vector<std::string> parts = {"It's",
                                                   "WE'LL",
                                                   "don't",
                                                   "HTTPServer",
                                                   "iPhone",
                                                   "na\xc3\xafve",
                                                   "e\xcc\x81",
                                                   "12345",
                                                   "6",
                                                   "\xd9\xa1\xd9\xa2",
                                                   "\xc2\xbd",
                                                   "\xe2\x85\xa7",
                                                   "\xe6\x97\xa5\xe6\x9c\xac",
                                                   "\xe3\x81\xae",
                                                   "\xed\x95\x9c\xea\xb5\xad",
                                                   "\xef\xbc\x8c",
                                                   "\xd0\x9f\xd1\x80\xd0\xb8",
                                                   "\xe0\xa4\xb9\xe0\xa4\xbf",
                                                   "\xf0\x9f\x98\x80",
                                                   "!!",
                                                   "...",
                                                   "$",
                                                   "+=",
                                                   "#include",
                                                   "\\n",
                                                   "/",
                                                   "(a)",
                                                   "[b]",
                                                   "_x_",
                                                   "\xc7\x85",
                                                   "\xca\xb0",
                                                   "\xe2\x80\x9cq\xe2\x80\x9d",
                                                   "\xe2\x96\x81",
                                                   "<0x0A>",
                                                   " ",
                                                   " ",
                                                   " ",
                                                   "  ",
                                                   "\t",
                                                   "\n",
                                                   "\r\n",
                                                   "\n\n",
                                                   "\xc2\xa0",
                                                   "\xe3\x80\x80",
                                                   "\xe1\xa0\x8e",
                                                   "\xc2\x85",
                                                   std::string(1, '\0'),
                                                   "\x1b",
                                                   "\x7f",
                                                   "\xff",
                                                   "<|end|>",
                                                   "<tool>",
                                                   "<pad>",
                                                   "\xc3\xb5"};
    std::string text;
    for (auto count = random_() % 12; count > 0; --count) text += parts[random_() % parts.size()];
    return text;
  }

 private:
  std::mt19937 random_;
};

/// Every byte, merges of neighbours in random texts across all borders of words, and tokens of each other type.
Vocabulary byte_level(const std::string& rule) {
  Vocabulary v;
  v.splitter = rule;
  for (int byte = 0; byte < 256; ++byte) add(&v, characters_of_bytes(std::string(1, static_cast<char>(byte))));
  std::vector<std::string> whole;
  Texts texts(1);
  for (int i = 0; i < 400; ++i) {
    const std::string text = texts.next();
    for (std::size_t at = 0; at + 1 < text.size(); ++at) {
      const std::string left = characters_of_bytes(text.substr(at, 1)),
                        right = characters_of_bytes(text.substr(at + 1, 1));
      if (std::find(v.tokens.begin(), v.tokens.end(), left + right) != v.tokens.end()) continue;
      add(&v, left + right);
      v.merges.emplace_back(left, right);
      whole.push_back(left + right);
    }
  }
  for (std::size_t i = 1; i < whole.size(); i += 2) {
    if (std::find(v.tokens.begin(), v.tokens.end(), whole[i - 1] + whole[i]) != v.tokens.end()) continue;
    add(&v, whole[i - 1] + whole[i]);
    v.merges.emplace_back(whole[i - 1], whole[i]);
  }
  v.merges.push_back(v.merges.front());  // the first one counts
  v.bos = add(&v, "<s>", Kind::control);
  v.eos = add(&v, "<|end|>", Kind::control);
  add(&v, "<tool>", Kind::user_defined);
  v.padding = add(&v, "<pad>", Kind::unused);
  add(&v, "\xe2\x84\xa2");  // no characters of bytes
  return v;
}

/// Every byte, pieces that begin and end inside of words, and tokens of each other type.
Vocabulary pieces() {
  Vocabulary v;
  v.scheme = Scheme::pieces;
  v.unknown = add(&v, "<unk>", Kind::unknown);
  v.bos = add(&v, "<s>", Kind::control);
  v.eos = add(&v, "<|end|>", Kind::control);
  for (int byte = 0; byte < 256; ++byte) {
    constexpr std::string_view digits = "0123456789abcdef";
    const auto at = static_cast<std::size_t>(byte);
    add(&v, std::string("<0x") + digits[at / 16] + digits[at % 16] + ">", Kind::byte);
  }
  double score = -1;
  for (const char* piece : {"\xe2\x96\x81", "\xe2\x96\x81t", "to", "ol", "e", "n", "en", "nd",
                            "\xe2\x96\x81\xe2\x96\x81", "\xe6\x97\xa5", "l", "o", "t", "d", "a", "A", "12", "1", "2"})
    add(&v, piece, Kind::normal, score -= 0.5);
  add(&v, "<tool>", Kind::user_defined);
  add(&v, "<a b>", Kind::user_defined);
  add(&v, "<pad>", Kind::unused);
  v.adds_bos = v.adds_space = true;
  return v;
}

/// The vocabulary of GGUF's "gemma4", whose description gguf_vocabulary states.
Vocabulary gemma4() {
  Vocabulary v = pieces();
  v.scheme = Scheme::bytes;
  v.scores.clear();
  v.merges = {{"t", "o"}, {"o", "l"}, {"e", "n"}, {"n", "d"}, {"\xe2\x96\x81", "t"}, {"1", "2"}};
  v.description = R"({"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
      "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[^\\n]+|\\n+"}, "behavior": "Isolated"},
      "decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}]},
      "model": {"type": "BPE", "byte_fallback": true, "fuse_unk": true}})";
  v.before = {*v.bos};
  return v;
}

/// A charsmap that makes "A" an "a".
std::string small_letter_charsmap() {
  const auto four_bytes = [](std::uint32_t value) {
    std::string bytes;
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> 8 * i & 255);
    return bytes;
  };
  // The root's children lie at 256 + byte; the child of "A" has its value at 256 + 'A' + 256.
  std::vector<std::uint32_t> units(1024, 0xff);
  units[0] = 256u << 10;
  units[256 ^ 'A'] = 'A' | 0x100u | 512u << 10;
  units[(256 ^ 'A') ^ 512] = 0x80000000u;
  std::string bytes = four_bytes(static_cast<std::uint32_t>(4 * units.size()));
  for (const std::uint32_t unit : units) bytes += four_bytes(unit);
  return bytes + std::string("a\0", 2);
}

class VocabularyFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("bie_vocabulary_files." + std::to_string(std::random_device()()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Vocabulary written(const Vocabulary& v) {
    for (const auto& [name, bytes] : vocabulary_files(v, {})) std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_vocabulary(folder_.string());
  }
  /// Compares tokens of texts, what they decode to, and what ends an answer.
  void expect_same(const Vocabulary& v, const std::string& what) {
    const Tokenizer wanted(v), got(written(v));
    EXPECT_EQ(got.before(), wanted.before()) << what;
    EXPECT_EQ(got.after(), wanted.after()) << what;
    EXPECT_EQ(got.eos(), wanted.eos()) << what;
    Texts texts(2);
    for (int i = 0; i < 500; ++i) {
      const std::string text = texts.next();
      const Tokens tokens = wanted.opened(text);
      ASSERT_EQ(got.opened(text), tokens) << what << ": " << text;
      ASSERT_EQ(got.encode(text, false), wanted.encode(text, false)) << what << ": " << text;
      ASSERT_EQ(got.decode(tokens, true), wanted.decode(tokens, true)) << what << ": " << text;
    }
    for (std::int32_t token = 0; token < wanted.size(); ++token) {
      ASSERT_EQ(got.is_end(token), wanted.is_end(token)) << what << ": " << token;
      ASSERT_EQ(got.is_control(token), wanted.is_control(token)) << what << ": " << token;
      ASSERT_EQ(got.bytes(token, true), wanted.bytes(token, true)) << what << ": " << token;
    }
  }

  std::filesystem::path folder_;
};

std::string refusal(const Vocabulary& v) {
  try {
    vocabulary_files(v, {});
  } catch (const formats::Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(VocabularyFiles, EveryRuleCutsTextsAlike) {
  for (const std::string& rule : split_rules()) expect_same(byte_level(rule), rule);
}

TEST_F(VocabularyFiles, ByteLevelTextsBeginAndEndAsTheFileSays) {
  for (const char* rule : {"gpt-2", "llama-bpe"})
    for (const bool adds : {false, true}) {
      Vocabulary v = byte_level(rule);
      v.adds_bos = adds;
      v.adds_eos = adds;
      expect_same(v, rule);
      EXPECT_EQ(Tokenizer(written(v)).before(), adds ? Tokens{*v.bos} : Tokens{});
    }
}

TEST_F(VocabularyFiles, OneTokenBeginsAndEndsTexts) {
  Vocabulary v = byte_level("falcon");
  v.bos = v.eos;
  v.adds_bos = v.adds_eos = true;
  expect_same(v, "one token");
}

TEST_F(VocabularyFiles, AnUnusedTokenThatIsAPieceHasNoName) {
  Vocabulary v = byte_level("llama-bpe");
  const std::int32_t word = add(&v, "qqqq", Kind::unused), words = add(&v, "qqqq q", Kind::unused);
  const Tokenizer tokenizer(written(v));
  EXPECT_EQ(tokenizer.encode("qqqq q"), Tokenizer(v).encode("qqqq q"));
  EXPECT_EQ(tokenizer.bytes(word), "");
  EXPECT_EQ(tokenizer.bytes(words), "qqqq q");
}

TEST_F(VocabularyFiles, AUserDefinedTokenOfByteCharactersStaysText) {
  Vocabulary v = byte_level("deepseek-llm");
  const auto at = static_cast<std::size_t>(std::find(v.tokens.begin(), v.tokens.end(), "\xc3\xb5") - v.tokens.begin());
  v.kinds[at] = Kind::user_defined;  // the character of byte 0xf5, which no text has
  EXPECT_EQ(Tokenizer(written(v)).decode(Tokenizer(v).encode("\xc3\xb5")), "\xc3\xb5");
}

TEST_F(VocabularyFiles, Gemma4) { expect_same(gemma4(), "gemma4"); }

TEST_F(VocabularyFiles, SentencePieces) {
  for (const bool adds_space : {false, true})
    for (const bool adds_bos : {false, true}) {
      Vocabulary v = pieces();
      v.adds_space = adds_space;
      v.adds_bos = adds_bos;
      expect_same(v, "llama");
    }
}

/// As in Gemma 3's files.
TEST_F(VocabularyFiles, AnUnknownTokenThatIsFoundInTexts) {
  Vocabulary v = pieces();
  v.kinds[0] = Kind::control;
  expect_same(v, "control");
}

TEST_F(VocabularyFiles, SentencePiecesNormaliseTexts) {
  Vocabulary v = pieces();
  v.kinds[static_cast<std::size_t>(std::find(v.tokens.begin(), v.tokens.end(), "<a b>") - v.tokens.begin())] =
      Kind::unused;
  v.charsmap = small_letter_charsmap();
  v.removes_spaces = true;
  EXPECT_EQ(Tokenizer(v).encode("A"), Tokenizer(v).encode(" a "));
  expect_same(v, "charsmap");
}

TEST_F(VocabularyFiles, AllThatEndsAnAnswer) {
  Vocabulary v = byte_level("gpt-2");
  v.eot = v.bos;
  v.ends = {*v.eos, 7};
  expect_same(v, "ends");
  const auto config = nlohmann::json::parse(vocabulary_files(v, {}).at("generation_config.json"));
  EXPECT_EQ(config["eos_token_id"], (Tokens{*v.eos, *v.eot, 7}));
  v.eot.reset();
  v.ends.clear();
  EXPECT_EQ(nlohmann::json::parse(vocabulary_files(v, {}).at("generation_config.json"))["eos_token_id"], *v.eos);
}

TEST(VocabularyFilesConfig, ChatTemplates) {
  const auto value = [](const std::map<std::string, std::string>& templates) {
    const auto files = vocabulary_files(byte_level("gpt-2"), templates);
    return nlohmann::json::parse(files.at("tokenizer_config.json"))["chat_template"];
  };
  EXPECT_EQ(value({}), nullptr);
  EXPECT_EQ(value({{"", "{{ \"\n\" }}"}}), "{{ \"\n\" }}");
  EXPECT_EQ(
      value({{"", "one"}, {"tool_use", "two"}}),
      nlohmann::json::parse(R"([{"name": "default", "template": "one"}, {"name": "tool_use", "template": "two"}])"));
}

TEST(VocabularyFilesConfig, OtherSchemesAreRefused) {
  Vocabulary v = pieces();
  v.scheme = Scheme::unigram;
  EXPECT_EQ(refusal(v), "expected a tokenizer of BPE, \"gpt2\", \"gemma4\" or \"llama\", got \"t5\"");
  v.scheme = Scheme::words;
  EXPECT_EQ(refusal(v), "expected a tokenizer of BPE, \"gpt2\", \"gemma4\" or \"llama\", got \"bert\"");
}

TEST(VocabularyFilesConfig, NamesThatFilesCannotHoldAreRefused) {
  Vocabulary v = byte_level("gpt-2");
  const auto tokens = v.tokens.size();
  add(&v, "a", Kind::user_defined);
  EXPECT_EQ(refusal(v), "expected every token once, got \"a\" twice");
  v.tokens.back() = "\xff";
  EXPECT_EQ(refusal(v), "token " + std::to_string(tokens) + ": expected a name in UTF-8, got \"\xff\"");
  v = pieces();
  v.tokens.back().clear();
  EXPECT_EQ(refusal(v), "token " + std::to_string(v.tokens.size() - 1) + ": expected a name, got none");
  v = pieces();
  v.kinds[3] = Kind::unused;
  EXPECT_EQ(refusal(v), "expected tokens of all 256 bytes or of none, got 255");
  v = pieces();
  v.kinds[0] = Kind::normal;
  v.unknown.reset();
  EXPECT_EQ(refusal(v), "expected an unknown token, got none");
}

}  // namespace
}  // namespace bie::text
