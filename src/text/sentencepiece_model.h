// SentencePiece's .model files.
#pragma once

#include <string_view>

#include "bie/text/vocabulary.h"

namespace bie::text {

/// The vocabulary of a .model, which holds neither what stands before a text nor behind it.
/// @throws formats::Error, one sentence: no such message, a model of words or characters, spaces behind words.
Vocabulary sentencepiece_vocabulary(std::string_view bytes);

}  // namespace bie::text
