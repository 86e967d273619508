// Text into the tokens of a model and back: BPE of bytes and of characters, SentencePiece's BPE, Unigram, WordPiece.
// Source: docs/spec/language-models.md#tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bie/text/vocabulary.h"

namespace bie::text {

/// A part of a text whose parts have different rights to control tokens.
struct TextPart {
  std::string_view text;
  bool special;  ///< whether names of control tokens in it become these tokens
};

/// Never changes; threads share it.
class Tokenizer {
 public:
  /// @throws formats::Error, one sentence: a splitter that is not read, tokens that occur twice, a merge of what is no
  /// token, special tokens out of range, scores of another number.
  explicit Tokenizer(Vocabulary vocabulary);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;

  /// Any bytes are taken, those that are no UTF-8 too. Time is n log n of the text's length.
  /// @param special  whether names of control tokens in the text become these tokens.
  std::vector<std::int32_t> encode(std::string_view text, bool special = true) const;
  /// The tokens of the parts as one text. A control token's name lies wholly in parts that are special, which
  /// neighbours may share.
  std::vector<std::int32_t> encode(const std::vector<TextPart>& parts) const;
  /// The tokens of a text behind those that stand before one.
  std::vector<std::int32_t> opened(std::string_view text, bool special = true) const;
  /// The bytes of a token; those of a control token are empty, or its name where `special`.
  std::string_view bytes(std::int32_t token, bool special = false) const;
  std::string decode(const std::vector<std::int32_t>& tokens, bool special = false) const;

  std::int64_t size() const;
  /// Whether a space stands before the first token of a text.
  bool adds_space() const;
  /// The token a text begins with, where the file says so.
  std::optional<std::int32_t> begin() const;
  /// The tokens that stand before and after a text, where the file says so; begin() is the first one of before().
  const std::vector<std::int32_t>& before() const;
  const std::vector<std::int32_t>& after() const;
  /// The tokens that the file calls BOS and EOS, whether texts begin and end with them or not.
  std::optional<std::int32_t> bos() const;
  std::optional<std::int32_t> eos() const;
  /// Whether a token ends an answer: EOS, EOT, or one that generation_config.json calls so.
  bool is_end(std::int32_t token) const;
  bool is_control(std::int32_t token) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

/// The tokenizer of a file. @throws formats::Error naming the file, also for what the vocabulary holds.
Tokenizer gguf_tokenizer(const formats::GgufFile& file);
/// That of folder_vocabulary(path).
Tokenizer folder_tokenizer(const std::string& path);

/// Joins the bytes of tokens to whole characters: what ends inside a character waits for the rest of it.
class CharacterStream {
 public:
  /// Returns the text that can be shown once these bytes have come. Bytes that can be no character pass through.
  std::string put(std::string_view bytes);
  /// Returns the bytes that still wait.
  std::string end();

 private:
  std::string waiting_;
};

/// The text with every byte that belongs to no character replaced by U+FFFD, as JSON wants it.
std::string valid_utf8(std::string_view text);

}  // namespace bie::text
