// Vocabularies as files state them: GGUF's, tokenizer.json of Hugging Face, SentencePiece's .model.
// Source: docs/spec/language-models.md#tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bie/formats/gguf.h"

namespace bie::text {

/// The vocabulary as a file states it.
struct Vocabulary {
  enum class Kind : std::uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

  enum class Scheme : std::uint8_t {
    bytes,    ///< BPE by merges: byte-level, or of characters where `description` says so
    pieces,   ///< SentencePiece's BPE, by scores
    unigram,  ///< the pieces of the largest sum of scores
    words,    ///< WordPiece
  };

  Scheme scheme = Scheme::bytes;
  std::vector<std::string> tokens;  ///< as the file writes them; a token that a file leaves out has no name
  std::vector<Kind> kinds;
  std::vector<std::pair<std::string, std::string>> merges;  ///< of bytes: left and right, the most wanted first
  std::string splitter;         ///< of GGUF's bytes: the rule that cuts text before merges, "gpt-2", "llama-bpe"
  std::vector<double> scores;   ///< of pieces and unigram: the largest is wanted most; added tokens have none
  bool adds_space = false;      ///< of SentencePiece: before a text, and behind control tokens in it
  bool removes_spaces = false;  ///< of SentencePiece: at both ends, and all but one between words
  std::string charsmap;         ///< SentencePiece's precompiled_charsmap; empty: texts are not normalised
  std::optional<std::int32_t> bos, eos, eot, unknown, padding;
  std::optional<bool> adds_bos, adds_eos;
  std::vector<std::int32_t> ends;           ///< tokens that end an answer besides eos and eot
  std::vector<std::int32_t> before, after;  ///< tokens that the post-processor puts before and after a text
  std::string description;  ///< of tokenizer.json: its object without the lists of the model; empty for other files
};

/// @throws formats::Error naming the file and the key: no tokenizer, one that is not read, a list of another length.
Vocabulary gguf_vocabulary(const formats::GgufFile& file);

/// The vocabulary of a tokenizer.json of Hugging Face's tokenizers.
/// @throws formats::Error, one sentence: no JSON, a part that is not read, by its name, ids out of range.
Vocabulary tokenizer_json_vocabulary(std::string_view text);

/// The vocabulary of SentencePiece's .model, which holds neither what stands before a text nor behind it.
/// @throws formats::Error, one sentence: no such message, a model of words or characters, spaces behind words.
Vocabulary sentencepiece_vocabulary(std::string_view bytes);

/// The vocabulary of a folder of Hugging Face, or of such a file itself: tokenizer.json, else tokenizer.model. What
/// ends an answer is read of tokenizer_config.json, generation_config.json and config.json beside it.
/// @throws formats::Error naming the file.
Vocabulary folder_vocabulary(const std::string& path);

/// The name of GGUF's `tokenizer.ggml.model` for a vocabulary: "gpt2", "llama", "t5", "bert", "gemma4"; empty where
/// GGUF has none, as for a tokenizer.json that is no byte-level BPE.
std::string gguf_scheme(const Vocabulary& vocabulary);

/// The name of GGUF's `tokenizer.ggml.pre` under which byte-level BPE reads texts as this vocabulary does: the first
/// rule that gives the same tokens for texts in which all rules differ.
/// @throws formats::Error where none does.
std::string gguf_rule(const Vocabulary& vocabulary);

}  // namespace bie::text
