#include "text/chat_template/characters.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "text/chat_template/case_table.h"

namespace bie::text::chat {
namespace {

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

/// Whether one character matches a class of PCRE2's.
class CharacterClass {
 public:
  explicit CharacterClass(const char* pattern) {
    int error = 0;
    PCRE2_SIZE at = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
                              &error, &at, nullptr));
    if (code_ == nullptr) throw std::bad_alloc();
  }
  bool has(std::uint32_t code) const {
    const std::string text = utf8(code);
    const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match(
        pcre2_match_data_create_from_pattern(code_.get(), nullptr), pcre2_match_data_free);
    if (match == nullptr) throw std::bad_alloc();
    return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, PCRE2_NO_UTF_CHECK,
                       match.get(), nullptr) >= 0;
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
};

std::optional<std::uint32_t> found_in(const std::vector<CaseRange>& ranges, std::uint32_t code) {
  const auto next = std::upper_bound(ranges.begin(), ranges.end(), code,
                                     [](std::uint32_t c, const CaseRange& r) { return c < r.first; });
  if (next == ranges.begin()) return std::nullopt;
  const CaseRange& range = *(next - 1);
  if (code > range.last || (code - range.first) % range.step != 0) return std::nullopt;
  return code + static_cast<std::uint32_t>(range.offset);
}

std::optional<std::string> found_in(const std::vector<LongCase>& all, std::uint32_t code) {
  const auto found =
      std::lower_bound(all.begin(), all.end(), code, [](const LongCase& l, std::uint32_t c) { return l.code < c; });
  if (found == all.end() || found->code != code) return std::nullopt;
  return std::string(found->text);
}

}  // namespace

std::size_t next_character(std::string_view text, std::size_t at) {
  ++at;
  while (at < text.size() && continues(text[at])) ++at;
  return at;
}

std::size_t previous_character(std::string_view text, std::size_t at) {
  --at;
  while (at > 0 && continues(text[at])) --at;
  return at;
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

std::size_t class_steps(std::string_view text) {
  const auto others =
      std::count_if(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0xc0; });
  return text.size() / 4 + 8 * static_cast<std::size_t>(others);
}

std::size_t offset_of(std::string_view text, std::size_t character) {
  std::size_t at = 0;
  for (; character > 0 && at < text.size(); --character) at = next_character(text, at);
  return at;
}

std::uint32_t code_of(std::string_view character) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(character[i])); };
  switch (character.size()) {
    case 1: return byte(0);
    case 2: return (byte(0) & 0x1f) << 6 | (byte(1) & 0x3f);
    case 3: return (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    default: return (byte(0) & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
  }
}

std::string utf8(std::uint32_t code) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xc0 | code >> 6), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xe0 | code >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xf0 | code >> 18), tail(12), tail(6), tail(0)};
}

bool is_space(std::uint32_t code) {
  if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x1f);
  return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
         code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool is_line_end(std::uint32_t code) {
  return (code >= 10 && code <= 13) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
}

bool is_printable(std::uint32_t code) {
  if (code < 0x7f) return code >= 0x20;
  static const CharacterClass hidden("[\\p{C}\\p{Z}]");
  return !hidden.has(code);
}

std::string escaped(std::uint32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  constexpr char digits[] = "0123456789abcdef";
  const int count = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
  std::string text = count == 2 ? "\\x" : count == 4 ? "\\u" : "\\U";
  for (int i = count - 1; i >= 0; --i) text += digits[code >> (4 * i) & 15];
  return text;
}

std::string in_case(std::uint32_t code, Case wanted) {
  if (code < 0x80) {
    const auto c = static_cast<char>(code);
    if (wanted == Case::lower) return {c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c};
    return {c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c};
  }
  if (wanted == Case::lower) return code == 0x130 ? "i\xcc\x87" : utf8(found_in(lower_ranges(), code).value_or(code));
  if (wanted == Case::title) {
    if (auto text = found_in(long_title(), code)) return *text;
    if (const auto other = found_in(title_ranges(), code)) return utf8(*other);
  }
  if (auto text = found_in(long_upper(), code)) return *text;
  return utf8(found_in(upper_ranges(), code).value_or(code));
}

bool is_upper(std::uint32_t code) {
  if (code < 0x80) return code >= 'A' && code <= 'Z';
  static const CharacterClass all(
      "[\\p{Lu}\\x{2160}-\\x{216f}\\x{24b6}-\\x{24cf}\\x{1f130}-\\x{1f149}"
      "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}]");
  return all.has(code);
}

bool is_lower(std::uint32_t code) {
  if (code < 0x80) return code >= 'a' && code <= 'z';
  static const CharacterClass all(
      "[\\p{Ll}\\x{aa}\\x{ba}\\x{2b0}-\\x{2b8}\\x{2c0}\\x{2c1}\\x{2e0}-\\x{2e4}\\x{345}"
      "\\x{37a}\\x{1d2c}-\\x{1d6a}\\x{1d78}\\x{1d9b}-\\x{1dbf}\\x{2071}\\x{207f}"
      "\\x{2090}-\\x{209c}\\x{2170}-\\x{217f}\\x{24d0}-\\x{24e9}\\x{2c7c}\\x{2c7d}"
      "\\x{a69c}\\x{a69d}\\x{a770}\\x{a7f8}\\x{a7f9}\\x{ab5c}-\\x{ab5f}]");
  return all.has(code);
}

bool is_letter(std::uint32_t code) {
  if (code < 0x80) return is_upper(code) || is_lower(code);
  static const CharacterClass all("\\p{L}");
  return all.has(code);
}

bool is_decimal(std::uint32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  static const CharacterClass all("\\p{Nd}");
  return all.has(code);
}

bool is_digit(std::uint32_t code) {
  if (code < 0x80) return is_decimal(code);
  static const CharacterClass all(
      "[\\p{Nd}\\x{b2}\\x{b3}\\x{b9}\\x{1369}-\\x{1371}\\x{19da}\\x{2070}\\x{2074}-\\x{2079}\\x{2080}-\\x{2089}"
      "\\x{2460}-\\x{2468}\\x{2474}-\\x{247c}\\x{2488}-\\x{2490}\\x{24ea}\\x{24f5}-\\x{24fd}\\x{24ff}"
      "\\x{2776}-\\x{277e}\\x{2780}-\\x{2788}\\x{278a}-\\x{2792}\\x{10a40}-\\x{10a43}\\x{10e60}-\\x{10e68}"
      "\\x{11052}-\\x{1105a}\\x{1f100}-\\x{1f10a}]");
  return all.has(code);
}

bool is_numeric(std::uint32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  static const CharacterClass all("\\p{N}");
  return all.has(code);
}

std::vector<Value> characters_of(Runtime& runtime, const Value& text) {
  std::vector<Value> all;
  const std::string& bytes = text.bytes();
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t next = next_character(bytes, at);
    runtime.meter.step();
    all.push_back(runtime.string(text.text().part(at, next)));
    at = next;
  }
  return all;
}

}  // namespace bie::text::chat
