#include "text/normalizer.h"

#include <utility>
#include <vector>

#include "text/characters.h"
#include "text/charsmap.h"
#include "text/json_fields.h"
#include "text/pattern.h"

namespace bie::text {
namespace {

using formats::Error;
using formats::in_quotes;
using formats::joined;
using nlohmann::json;

class Formed : public Normalizer {
 public:
  explicit Formed(Form form) : form_(form) {}
  std::string normalized(std::string_view text, bool*) const override { return normal_form(text, form_); }

 private:
  Form form_;
};

class Lowercase : public Normalizer {
 public:
  std::string normalized(std::string_view text, bool*) const override { return lower_case(text); }
};

/// Leaves out the characters of a class.
class Without : public Normalizer {
 public:
  explicit Without(bool (*is_left_out)(char32_t)) : is_left_out_(is_left_out) {}
  std::string normalized(std::string_view text, bool* is_first) const override {
    std::string result;
    result.reserve(text.size());
    bool begins = true;
    for_each_character(text, [&](char32_t code, std::string_view character) {
      if (is_left_out_(code)) {
        if (begins) *is_first = false;
      } else {
        result += character;
        begins = false;
      }
    });
    return result;
  }

 private:
  bool (*is_left_out_)(char32_t);
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  std::string normalized(std::string_view text, bool* is_first) const override {
    if (left_) {
      const std::size_t spaces = spaces_before(text);
      if (spaces > 0) *is_first = false;
      text.remove_prefix(spaces);
    }
    if (right_) text.remove_suffix(spaces_behind(text));
    return std::string(text);
  }

 private:
  bool left_, right_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string text) : text_(std::move(text)) {}
  std::string normalized(std::string_view text, bool*) const override {
    return text.empty() ? std::string() : joined(text_, text);
  }

 private:
  std::string text_;
};

class Replace : public Normalizer {
 public:
  explicit Replace(const json& step) : content_(string_field(step, "content")) {
    const json& pattern = field(step, "pattern");
    if (field(pattern, "String").is_string())
      literal_ = string_field(pattern, "String");
    else
      pattern_ = std::make_unique<Pattern>(pcre_pattern(string_field(pattern, "Regex")));
  }
  std::string normalized(std::string_view text, bool* is_first) const override {
    std::string result;
    result.reserve(text.size());
    std::size_t from = 0;
    const auto replace = [&](std::size_t begin, std::size_t end) {
      if (begin == 0 && end > 0 && content_.empty()) *is_first = false;
      result.append(text.substr(from, begin - from)).append(content_);
      from = end;
      check_growth(result.size(), text.size());
    };
    if (pattern_ == nullptr) {
      if (literal_.empty()) return std::string(text);
      for (std::size_t at = text.find(literal_); at != std::string_view::npos; at = text.find(literal_, from))
        replace(at, at + literal_.size());
      return result.append(text.substr(from));
    }
    // Bytes that are no UTF-8 bound the texts that the pattern sees.
    for (std::size_t at = 0; at < text.size();) {
      std::size_t end = at;
      for (int length = 0; end < text.size() && (length = character_bytes(text, end)) > 0;)
        end += static_cast<std::size_t>(length);
      Pattern::Matches matches(*pattern_, text.substr(at, end - at));
      for (Pattern::Span span{}; matches.next(&span);) replace(at + span.begin, at + span.end);
      at = end + 1;
    }
    return result.append(text.substr(from));
  }

 private:
  std::string literal_, content_;
  std::unique_ptr<Pattern> pattern_;
};

/// BERT's: controls are left out, spaces become U+0020, Chinese characters stand between spaces, accents and large
/// letters go. Source: Devlin et al. 2018, BasicTokenizer.
class Bert : public Normalizer {
 public:
  explicit Bert(const json& step)
      : cleans_(flag(step, "clean_text", true)),
        parts_han_(flag(step, "handle_chinese_chars", true)),
        lowers_(flag(step, "lowercase", true)),
        strips_(flag(step, "strip_accents", lowers_)) {}

  std::string normalized(std::string_view text, bool* is_first) const override {
    std::string result;
    result.reserve(text.size());
    bool begins = true;
    for_each_character(text, [&](char32_t code, std::string_view character) {
      const bool is_white = code == '\t' || code == '\n' || code == '\r' || is_space(code);
      const bool is_control = is_other(code) && code != '\t' && code != '\n' && code != '\r';
      if (cleans_ && (code == 0xfffd || is_control)) {
        if (begins) *is_first = false;
        return;
      }
      begins = false;
      if (cleans_ && is_white)
        result += ' ';
      else if (parts_han_ && is_han(code))
        result.append(" ").append(character).append(" ");
      else
        result += character;
    });
    if (strips_) result = Without(is_nonspacing).normalized(normal_form(result, Form::nfd), is_first);
    return lowers_ ? lower_case(result) : result;
  }

 private:
  bool cleans_, parts_han_, lowers_, strips_;
};

/// SentencePiece's rules as tokenizers applies them: to a grapheme cluster of up to five bytes as a whole, by the rule
/// of its shortest beginning, else to each of its characters.
class Precompiled : public Normalizer {
 public:
  explicit Precompiled(std::string_view charsmap) : charsmap_(charsmap) {}
  std::string normalized(std::string_view text, bool*) const override {
    std::string result;
    result.reserve(text.size());
    const auto add = [&](std::string_view part) {
      const Charsmap::Rule rule = charsmap_.shortest(part);
      if (rule.size > 0) result += rule.with;
      check_growth(result.size(), text.size());
      return rule.size > 0;
    };
    for (std::size_t at = 0; at < text.size();) {
      const std::string_view cluster = text.substr(at, grapheme_bytes(text, at));
      at += cluster.size();
      if (cluster.size() < 6 && add(cluster)) continue;
      for_each_character(cluster, [&](char32_t, std::string_view character) {
        if (!add(character)) result += character;
      });
    }
    return result;
  }

 private:
  Charsmap charsmap_;
};

class Sequence : public Normalizer {
 public:
  std::vector<std::unique_ptr<Normalizer>> steps;
  std::string normalized(std::string_view text, bool* is_first) const override {
    std::string result(text);
    for (const auto& step : steps) {
      result = step->normalized(result, is_first);
      check_growth(result.size(), text.size());
    }
    return result;
  }
};

constexpr std::size_t most_steps = 64, longest_content = 1024;

std::string short_string(const json& step, const char* key) {
  std::string text = string_field(step, key);
  if (text.size() > longest_content)
    throw Error(joined(in_quotes(key), ": expected at most ", longest_content, " bytes, got ", text.size()));
  return text;
}

}  // namespace

void check_growth(std::size_t bytes, std::size_t before) {
  if (bytes > 65536 + 64 * before)
    throw Error(joined("a text is not normalised: expected at most 64 times its ", before, " bytes, got ", bytes));
}

std::unique_ptr<Normalizer> json_normalizer(const json& step) {
  if (step.is_null()) return nullptr;
  const std::string type = type_of(step);
  if (type == "NFC") return std::make_unique<Formed>(Form::nfc);
  if (type == "NFKC") return std::make_unique<Formed>(Form::nfkc);
  if (type == "NFD") return std::make_unique<Formed>(Form::nfd);
  if (type == "NFKD") return std::make_unique<Formed>(Form::nfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<Without>(is_mark);
  if (type == "Strip") return std::make_unique<Strip>(flag(step, "strip_left", true), flag(step, "strip_right", true));
  if (type == "Prepend") return std::make_unique<Prepend>(short_string(step, "prepend"));
  if (type == "Replace") return std::make_unique<Replace>(step);
  if (type == "BertNormalizer") return std::make_unique<Bert>(step);
  if (type == "Precompiled") {
    if (field(step, "precompiled_charsmap").is_null()) return nullptr;
    const std::string charsmap = base64_bytes(string_field(step, "precompiled_charsmap"));
    return charsmap.empty() ? nullptr : std::make_unique<Precompiled>(charsmap);
  }
  if (type == "Sequence") {
    const json& steps = field(step, "normalizers");
    if (!steps.is_array() || steps.size() > most_steps) refuse_field(step, "normalizers", "a list of at most 64 steps");
    auto all = std::make_unique<Sequence>();
    for (const json& part : steps)
      if (auto made = json_normalizer(part); made != nullptr) all->steps.push_back(std::move(made));
    return all;
  }
  throw Error(
      joined("\"normalizer\": expected BertNormalizer, Lowercase, NFC, NFD, NFKC, NFKD, Precompiled, Prepend, Replace, "
             "Sequence, Strip or StripAccents, got ",
             in_quotes(type)));
}

}  // namespace bie::text
