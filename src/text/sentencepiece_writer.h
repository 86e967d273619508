// Writes the vocabulary of SentencePiece's .model.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bie/text/vocabulary.h"

namespace bie::text {

/// The names of tokens as a .model has them: bytes with large digits, user-defined tokens with U+2581 for spaces.
std::vector<std::string> sentencepiece_names(const Vocabulary& vocabulary);

/// The token that a .model calls unknown: that of this type, else the one that the file names.
/// @throws formats::Error where there is none.
std::size_t unknown_piece(const Vocabulary& vocabulary);

/// The message that sentencepiece_vocabulary() reads, as the library of SentencePiece takes it.
/// @param names  those of sentencepiece_names.
/// @throws formats::Error, one sentence: a name that is empty, no UTF-8 or there twice, no unknown token, some bytes
/// but not all, user-defined tokens with spaces beside rules for spaces.
std::string sentencepiece_model(const Vocabulary& vocabulary, const std::vector<std::string>& names);

}  // namespace bie::text
