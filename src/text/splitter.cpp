#include "text/splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "bie/formats/error.h"
#include "text/utf8.h"

namespace bie::text {
namespace {

/// Unicode's White_Space: PCRE2's own \s has U+180E besides.
constexpr const char* spaces =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";

/// A pattern with %s and %S for a space and its opposite, and %x inside a class.
std::string pattern(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i];
      continue;
    }
    const char kind = text[++i];
    result += kind == 'x' ? spaces : std::string(kind == 's' ? "[" : "[^") + spaces + "]";
  }
  return result;
}

const std::vector<SplitRule>& rules() {
  // Source: the tokenizer.json of GPT-2, Llama 3, Qwen 2 and SmolLM.
  static const std::string gpt2 =
      pattern(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^%x\p{L}\p{N}]+|%s+(?!%S)|%s+)");
  static const std::string words = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)";
  static const std::string rest = R"(| ?[^%x\p{L}\p{N}]+[\r\n]*|%s*[\r\n]+|%s+(?!%S)|%s+)";
  static const std::vector<SplitRule> all = {
      {"gpt-2", {gpt2}, false, false},
      {"smollm", {R"(\p{N})", gpt2}, false, false},
      {"llama-bpe", {pattern(words + R"(\p{N}{1,3})" + rest)}, true, true},
      {"qwen2", {pattern(words + R"(\p{N})" + rest)}, false, false},
  };
  return all;
}

}  // namespace

const SplitRule* split_rule(std::string_view name) {
  const auto& all = rules();
  const auto found = std::find_if(all.begin(), all.end(), [&](const SplitRule& r) { return r.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::string split_rule_names() {
  std::string names;
  for (const SplitRule& rule : rules()) names += (names.empty() ? "" : ", ") + std::string(rule.name);
  return names;
}

struct Splitter::Pattern {
  pcre2_code* code;

  explicit Pattern(const std::string& text) {
    int error = 0;
    PCRE2_SIZE at = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), PCRE2_UTF | PCRE2_UCP, &error, &at,
                         nullptr);
    if (code == nullptr)
      throw formats::Error(formats::joined("a pattern of a tokenizer is not compiled, error ", error));
  }
  ~Pattern() { pcre2_code_free(code); }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
};

Splitter::Splitter(const SplitRule& rule) {
  for (const std::string& text : rule.patterns) patterns_.push_back(std::make_unique<const Pattern>(text));
}

Splitter::~Splitter() = default;

void Splitter::by_pattern(std::string_view text, std::size_t index,
                          const std::function<void(std::string_view)>& take) const {
  if (text.empty()) return;
  if (index == patterns_.size()) return take(text);
  const pcre2_code* const code = patterns_[index]->code;
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match(
      pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free);
  if (match == nullptr) throw std::bad_alloc();
  std::size_t at = 0;
  while (at < text.size()) {
    const int count = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, PCRE2_NO_UTF_CHECK,
                                  match.get(), nullptr);
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) throw formats::Error(formats::joined("a text is not split into pieces: error ", count, " of PCRE2"));
    const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(match.get());
    if (ends[1] == ends[0]) break;  // no pattern of ours matches nothing
    by_pattern(text.substr(at, ends[0] - at), index + 1, take);
    by_pattern(text.substr(ends[0], ends[1] - ends[0]), index + 1, take);
    at = ends[1];
  }
  by_pattern(text.substr(at), index + 1, take);
}

void Splitter::split(std::string_view text, const std::function<void(std::string_view)>& take) const {
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    const bool is_text = character_bytes(text, at) > 0;
    while (end < text.size()) {
      const int length = character_bytes(text, end);
      if ((length > 0) != is_text) break;
      end += static_cast<std::size_t>(length > 0 ? length : 1);
    }
    if (is_text)
      by_pattern(text.substr(at, end - at), 0, take);
    else
      take(text.substr(at, end - at));
    at = end;
  }
}

}  // namespace bie::text
