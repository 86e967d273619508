// Writes the tokenizer.json of BPE by merges.
#pragma once

#include <string>
#include <vector>

#include "bie/text/tokenizer.h"
#include "bie/text/vocabulary.h"

namespace bie::text {

/// The names of tokens as a tokenizer.json has them; those of tokens that it leaves out are empty.
/// @throws formats::Error, one sentence: a name that is no UTF-8, or there twice.
std::vector<std::string> tokenizer_json_names(const Vocabulary& vocabulary);

/// The text that tokenizer_json_vocabulary() reads.
/// @param tokenizer  the vocabulary's.
/// @param names      those of tokenizer_json_names.
/// @throws formats::Error for a rule that tokenizer.json cannot express.
std::string tokenizer_json(const Vocabulary& vocabulary, const Tokenizer& tokenizer,
                           const std::vector<std::string>& names);

}  // namespace bie::text
