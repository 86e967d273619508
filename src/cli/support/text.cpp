#include "cli/support/text.h"

#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <sstream>
#include <string_view>

#include "report/characters.h"

namespace bie::cli {

std::string format(const char* pattern, ...) {
  va_list arguments, again;
  va_start(arguments, pattern);
  va_copy(again, arguments);
  const int size = std::vsnprintf(nullptr, 0, pattern, arguments);
  va_end(arguments);
  std::string text(static_cast<std::size_t>(size > 0 ? size : 0), '\0');
  std::vsnprintf(text.data(), text.size() + 1, pattern, again);
  va_end(again);
  return text;
}

std::string duration(double seconds) {
  const auto whole = static_cast<long long>(seconds + 0.5);
  if (whole < 3600) return format("%lld:%02lld", whole / 60, whole % 60);
  return format("%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32] = "";
  if (::gmtime_r(&now, &parts) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

std::string wrapped(const std::string& text, std::size_t indent) {
  constexpr std::size_t columns = 80;
  std::istringstream words(text);
  std::string result, word;
  std::size_t column = indent;
  while (words >> word) {
    if (column > indent && column + 1 + word.size() > columns) {
      result.append(1, '\n').append(indent, ' ');
      column = indent;
    }
    if (column > indent) result += ' ';
    column += word.size() + (column > indent ? 1 : 0);
    result += word;
  }
  return result;
}

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t bytes = report::character_bytes(text);
    const auto first = static_cast<unsigned char>(text[0]);
    // Control characters: those of one byte, and U+0080 to U+009F, which are C2 80 to C2 9F.
    const bool control =
        first < 0x20 || first == 0x7f || (bytes == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0);
    const std::size_t taken = bytes == 0 ? 1 : bytes;
    for (const char c : text.substr(0, taken))
      result += bytes == 0 || control ? format("\\x%02x", static_cast<unsigned char>(c)) : std::string(1, c);
    text.remove_prefix(taken);
  }
  return result;
}

std::string shell_line(const std::vector<std::string>& words) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,+@%";
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

}  // namespace bie::cli
