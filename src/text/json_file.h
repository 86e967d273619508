// A tokenizer.json, read event by event: its lists of tokens are long.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bie::text {

struct TokenizerJson {
  nlohmann::json rest;                                      ///< all of it but the lists below
  std::vector<std::pair<std::string, std::int64_t>> ids;    ///< "vocab" as an object
  std::vector<std::pair<std::string, double>> scores;       ///< "vocab" as a list of pairs
  std::vector<std::pair<std::string, std::string>> merges;  ///< strings with a space between both, or pairs
};

/// The long lists never become values of the JSON library, which take ten times their memory.
/// @throws formats::Error: it is no JSON object, nests deeper than 32 levels, has a key twice, or lists of other
/// things.
TokenizerJson read_tokenizer_json(std::string_view text);

}  // namespace bie::text
