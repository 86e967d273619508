// The tokenizer of a GGUF file as files of a folder of Hugging Face.
#pragma once

#include <map>
#include <string>

#include "bie/text/vocabulary.h"

namespace bie::text {

/// The files whose folder folder_vocabulary() reads to the same tokens for every text: names of files and their bytes.
/// They are tokenizer.json for BPE by merges and SentencePiece's tokenizer.model for pieces, tokenizer_config.json with
/// the chat templates, and generation_config.json with the tokens that end an answer.
///
/// Unused tokens have no name in tokenizer.json where a model would make them of a text; then they decode to nothing.
/// @param vocabulary      the vocabulary of a GGUF file; see gguf_vocabulary.
/// @param chat_templates  texts of Jinja by their names; the default one has an empty name.
/// @throws formats::Error, one sentence: another scheme, what Tokenizer refuses, a name that the files cannot hold, a
/// rule that tokenizer.json cannot express.
std::map<std::string, std::string> vocabulary_files(const Vocabulary& vocabulary,
                                                    const std::map<std::string, std::string>& chat_templates);

}  // namespace bie::text
