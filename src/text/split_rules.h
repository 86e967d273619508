// How a text is cut into pieces before tokens are merged inside each of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bie::text {

struct SplitRule {
  std::vector<std::string> patterns;  ///< each cuts what the one before it left, matches and what lies between them
  bool whole_first;                   ///< a piece that is a token becomes it, whatever the merges
  bool adds_bos;                      ///< where the file does not say
};

/// The rule that files call so; nothing for a name that is not read.
std::optional<SplitRule> split_rule(std::string_view name);
/// One name for each rule.
std::vector<std::string> split_rules();
/// "gpt-2, llama-bpe, ..."
std::string split_rule_names();

}  // namespace bie::text
