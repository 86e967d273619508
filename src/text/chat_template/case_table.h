// Which character is another one in another case; ASCII is left out.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace bie::text::chat {

/// Every `step`th character from first to last; its other case is `offset` further.
struct CaseRange {
  std::uint32_t first, last, step;
  std::int32_t offset;
};

/// A character whose other case has several.
struct LongCase {
  std::uint32_t code;
  std::string_view text;
};

/// All are rising. A title is the upper case unless one of its tables says otherwise.
const std::vector<CaseRange>& upper_ranges();
const std::vector<CaseRange>& lower_ranges();
const std::vector<CaseRange>& title_ranges();
const std::vector<LongCase>& long_upper();
const std::vector<LongCase>& long_title();

}  // namespace bie::text::chat
