#include "text/split_rules.h"

#include <algorithm>

#include "text/pattern.h"

namespace bie::text {
namespace {

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
    if (kind != 'x') result += kind == 's' ? "[" : "[^";
    result += space_class;
    if (kind != 'x') result += ']';
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

std::vector<std::string> split_rules() {
  std::vector<std::string> names;
  for (const RuleOfNames& rule : rules()) names.emplace_back(rule.names.front());
  return names;
}

std::string split_rule_names() {
  std::string names;
  for (const RuleOfNames& rule : rules())
    for (const std::string_view name : rule.names) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

}  // namespace bie::text
