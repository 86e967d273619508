// How a text is cut into pieces before tokens are merged inside each of them.
#pragma once

#include <functional>
#include <memory>
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
/// "gpt-2, llama-bpe, ..."
std::string split_rule_names();

/// Compiled patterns of a rule.
class Splitter {
 public:
  explicit Splitter(const SplitRule& rule);
  ~Splitter();
  Splitter(const Splitter&) = delete;
  Splitter& operator=(const Splitter&) = delete;

  /// Calls take(piece) for all pieces in their order; together they are the text. A run of bytes that are no UTF-8 is a
  /// piece. @throws formats::Error where a pattern gives up.
  void split(std::string_view text, const std::function<void(std::string_view)>& take) const;

 private:
  void by_pattern(std::string_view text, std::size_t pattern, const std::function<void(std::string_view)>& take) const;

  struct Pattern;
  std::vector<std::unique_ptr<const Pattern>> patterns_;
};

}  // namespace bie::text
