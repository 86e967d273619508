// Text into the tokens of a model and back: byte-level BPE, and SentencePiece's BPE.
// Source: docs/spec/language-models.md#tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bie/formats/gguf.h"

namespace bie::text {

/// The vocabulary as a file states it.
struct Vocabulary {
  enum class Kind : std::uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

  enum class Scheme : std::uint8_t {
    bytes,   ///< byte-level BPE: normal tokens have a character for each byte
    pieces,  ///< SentencePiece's BPE: U+2581 stands for a space
  };

  Scheme scheme = Scheme::bytes;
  std::vector<std::string> tokens;  ///< as the file writes them
  std::vector<Kind> kinds;
  std::vector<std::string> merges;  ///< of bytes: "left right", the most wanted first
  std::string splitter;             ///< of bytes: the rule that cuts text before merges, "gpt-2", "llama-bpe"
  std::vector<float> scores;        ///< of pieces: the largest is joined first
  bool adds_space = false;          ///< of pieces: before a text, and behind control tokens in it
  std::optional<std::int32_t> bos, eos, eot;
  std::optional<bool> adds_bos;
};

/// @throws formats::Error naming the file and the key: no tokenizer, one that is not read, a list of another length.
Vocabulary gguf_vocabulary(const formats::GgufFile& file);

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
  /// The bytes of a token; those of a control token are empty, or its name where `special`.
  std::string_view bytes(std::int32_t token, bool special = false) const;
  std::string decode(const std::vector<std::int32_t>& tokens, bool special = false) const;

  std::int64_t size() const;
  /// Whether a space stands before the first token of a text.
  bool adds_space() const;
  /// The token a text begins with, where the file says so.
  std::optional<std::int32_t> begin() const;
  /// The tokens that the file calls BOS and EOS, whether texts begin and end with them or not.
  std::optional<std::int32_t> bos() const;
  std::optional<std::int32_t> eos() const;
  /// Whether a token ends an answer.
  bool is_end(std::int32_t token) const;
  bool is_control(std::int32_t token) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

/// The tokenizer of a file. @throws formats::Error naming the file, also for what the vocabulary holds.
Tokenizer gguf_tokenizer(const formats::GgufFile& file);

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
