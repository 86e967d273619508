// Numbers and words as people read them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bie::cli {

/// printf into a string.
__attribute__((format(printf, 1, 2))) std::string format(const char* pattern, ...);

/// "0:07", "12:34", "1:02:03".
std::string duration(double seconds);

/// "2025-03-01 14:02 UTC".
std::string utc_now();

/// Text that may come from a file, for a terminal: on one line, control characters and what is no UTF-8 as "\x1b".
std::string printable(std::string_view text);

/// Words as a shell takes them, quoted where they have to be.
std::string shell_line(const std::vector<std::string>& words);

/// The words of the text in lines of at most 80 columns; the first begins at column `indent`, the others are moved
/// there.
std::string wrapped(const std::string& text, std::size_t indent = 0);

}  // namespace bie::cli
