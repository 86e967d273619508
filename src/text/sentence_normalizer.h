// What SentencePiece makes of a text before it is cut: rules of characters, spaces, and U+2581 in their place.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "bie/text/vocabulary.h"
#include "text/charsmap.h"
#include "text/names.h"
#include "text/normalizer.h"

namespace bie::text {

/// Source: Kudo and Richardson 2018, section 3.2.
class SentenceNormalizer : public Normalizer {
 public:
  /// Names of user-defined tokens stay what they are. @throws formats::Error for the charsmap and the names.
  explicit SentenceNormalizer(const Vocabulary& vocabulary, const std::vector<std::string>& names);

  std::string normalized(std::string_view text, bool* is_first) const override;

 private:
  bool adds_space_, removes_spaces_;
  std::optional<Charsmap> charsmap_;
  Names user_defined_;
};

}  // namespace bie::text
