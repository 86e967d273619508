#include "formats/number_text.h"

namespace bie::formats {

bool is_written_as_a_number(std::string_view text) {
  constexpr std::string_view signs[] = {"+", "-", "%", "$", " ", "\xe2\x82\xac", "\xc2\xa3"};  // euro, pound
  bool marked = false;
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view sign : signs) {
      const bool front = text.starts_with(sign), back = !front && text.ends_with(sign);
      if (!front && !back) continue;
      front ? text.remove_prefix(sign.size()) : text.remove_suffix(sign.size());
      again = true;
      marked |= sign != "+" && sign != "-";
    }
  }
  marked |= text.find_first_of(",' ") != std::string_view::npos;
  return marked && text.find_first_of("0123456789") != std::string_view::npos &&
         text.find_first_not_of("0123456789.,' ") == std::string_view::npos;
}

}  // namespace bie::formats
