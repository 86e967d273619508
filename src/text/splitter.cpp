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

/// A pattern with %s and %S for a space and its opposite, %x inside a class, and %% for a per cent sign.
std::string pattern(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i];
      continue;
    }
    const char kind = text[++i];
    if (kind == '%') {
      result += kind;
      continue;
    }
    result += kind == 'x' ? spaces : std::string(kind == 's' ? "[" : "[^") + spaces + "]";
  }
  return result;
}

/// Rules that differ in their patterns, and the other names under which files have them.
struct RuleOfNames {
  std::vector<std::string_view> names;
  std::vector<std::string> patterns;
  bool whole_first = false, adds_bos = false;
};

const std::vector<RuleOfNames>& rules() {
  // Source: the tokenizer.json of GPT-2, Llama 3, Qwen 2 and 3.5, SmolLM, DeepSeek, Falcon, Mistral NeMo, GPT-4o.
  static const std::string gpt2 =
      pattern(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^%x\p{L}\p{N}]+|%s+(?!%S)|%s+)");
  static const std::string endings = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))";
  static const std::string words = endings + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|)";
  static const std::string rest = R"(| ?[^%x\p{L}\p{N}]+[\r\n]*|%s*[\r\n]+|%s+(?!%S)|%s+)";
  // Words of small letters behind large ones, or of large letters alone; a letter without case is both.
  static const std::string large = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])", small = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  const auto cased = [&](const std::string& end, const std::string& digits) {
    const std::string before = R"([^\r\n\p{L}\p{N}]?)";
    return pattern(before + large + "*" + small + "+" + end + "|" + before + large + "+" + small + "*" + end + "|" +
                   digits + R"(| ?[^%x\p{L}\p{N}]+[\r\n/]*|%s*[\r\n]+|%s+(?!%S)|%s+)");
  };
  static const std::string signs = R"([!"#$%%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~])";
  static const std::string cjk = R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";
  static const std::string asian = R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)";
  static const std::vector<RuleOfNames> all = {
      {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4"}, {gpt2}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}, {R"(\p{N})", gpt2}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"},
       {pattern(words + R"(\p{N}{1,3})" + rest)},
       true,
       true},
      {{"smaug-bpe", "dbrx", "chatglm-bpe", "glm4"}, {pattern(words + R"(\p{N}{1,3})" + rest)}},
      {{"qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan", "solar-open", "grok-2"},
       {pattern(words + R"(\p{N})" + rest)}},
      {{"qwen35"},
       {pattern(endings + R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^%x\p{L}\p{M}\p{N}]+[\r\n]*)" +
                R"(|%s*[\r\n]+|%s+(?!%S)|%s+)")}},
      {{"deepseek-coder"}, {R"([\r\n])", pattern(R"(%s?\p{L}+)"), pattern(R"(%s?\p{P}+)"), asian, R"(\p{N})"}},
      // A run of spaces is looked at once, from its beginning.
      {{"deepseek-llm"},
       {R"([\r\n])", pattern(R"(%s?\p{L&}+)"),
        pattern(R"(%s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)"),
        pattern(R"((?<!%s)%s++$)"), asian, R"(\p{N}+)"}},
      {{"deepseek-v3", "hunyuan-dense"},
       {R"(\p{N}{1,3})", cjk,
        pattern(signs + R"([A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)" +
                R"(|%s*[\r\n]+|%s+(?!%S)|%s+)")}},
      {{"falcon"}, {R"([\p{P}$+<=>^~|`]+)", gpt2, R"([0-9]{3})"}},
      {{"tekken"}, {cased("", R"(\p{N})")}, true, true},
      {{"gpt-4o", "llama4"}, {cased(endings + "?", R"(\p{N}{1,3})")}},
      {{"seed-coder"}, {pattern(words + R"(\p{N}| ?[^%x\p{L}\p{N}\r\n]+|%s*[\r\n]+|%s+(?!%S)|%s+)")}},
  };
  return all;
}

}  // namespace

std::optional<SplitRule> split_rule(std::string_view name) {
  for (const RuleOfNames& rule : rules())
    if (std::find(rule.names.begin(), rule.names.end(), name) != rule.names.end())
      return SplitRule{rule.patterns, rule.whole_first, rule.adds_bos};
  return std::nullopt;
}

std::string split_rule_names() {
  std::string names;
  for (const RuleOfNames& rule : rules())
    for (const std::string_view name : rule.names) names += (names.empty() ? "" : ", ") + std::string(name);
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
