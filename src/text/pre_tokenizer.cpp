#include "text/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "text/byte_characters.h"
#include "text/characters.h"
#include "text/json_fields.h"
#include "text/pattern.h"

namespace bie::text {
namespace {

using formats::Error;
using formats::in_quotes;
using formats::joined;
using nlohmann::json;
using Take = PreTokenizer::Take;

/// What becomes of a match: its own piece, none, one with its neighbour, or one with the matches beside it.
enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

struct Cut {
  std::size_t begin, end;
  bool is_match;
};

void put(const Piece& whole, std::size_t begin, std::size_t end, const Take& take) {
  if (begin < end) take({whole.text.substr(begin, end - begin), whole.is_first && begin == 0});
}

/// Pieces of cuts that cover a text in their order.
class Joiner {
 public:
  Joiner(const Piece& whole, Behavior behavior, const Take& take) : whole_(whole), behavior_(behavior), take_(take) {}

  void add(const Cut& cut) {
    switch (behavior_) {
      case Behavior::isolated: return put(whole_, cut.begin, cut.end, take_);
      case Behavior::removed:
        if (!cut.is_match) put(whole_, cut.begin, cut.end, take_);
        return;
      case Behavior::contiguous:
        if (has_last_ && last_.is_match == cut.is_match) {
          last_.end = cut.end;
          return;
        }
        break;
      case Behavior::merged_with_previous:
        if (has_last_ && cut.is_match && !last_.is_match) {
          last_.end = cut.end;
          last_.is_match = true;
          return;
        }
        break;
      case Behavior::merged_with_next:
        if (has_last_ && last_.is_match && !cut.is_match) {
          last_.end = cut.end;
          last_.is_match = false;
          return;
        }
        break;
    }
    end();
    last_ = cut;
    has_last_ = true;
  }
  void end() {
    if (has_last_) put(whole_, last_.begin, last_.end, take_);
    has_last_ = false;
  }

 private:
  const Piece& whole_;
  Behavior behavior_;
  const Take& take_;
  Cut last_{};
  bool has_last_ = false;
};

class PatternSplit : public PreTokenizer {
 public:
  PatternSplit(const std::string& pattern, Behavior behavior, bool inverted)
      : pattern_(pattern), behavior_(behavior), inverted_(inverted) {}

  void split(Piece piece, const Take& take) const override {
    Pattern::Matches matches(pattern_, piece.text);
    Pattern::Span span{};
    Joiner joiner(piece, behavior_, take);
    std::size_t at = 0;
    while (matches.next(&span)) {
      if (span.begin > at) joiner.add({at, span.begin, inverted_});
      joiner.add({std::max(at, span.begin), std::max(at, span.end), !inverted_});
      at = std::max(at, span.end);
    }
    if (at < piece.text.size()) joiner.add({at, piece.text.size(), inverted_});
    joiner.end();
  }

 private:
  Pattern pattern_;
  Behavior behavior_;
  bool inverted_;
};

/// Each character of a class is a match.
class ClassSplit : public PreTokenizer {
 public:
  ClassSplit(bool (*is_match)(char32_t), Behavior behavior) : is_match_(is_match), behavior_(behavior) {}

  void split(Piece piece, const Take& take) const override {
    Joiner joiner(piece, behavior_, take);
    std::size_t from = 0, at = 0;
    for_each_character(piece.text, [&](char32_t code, std::string_view character) {
      const std::size_t end = at + character.size();
      if (is_match_(code)) {
        if (from < at) joiner.add({from, at, false});
        joiner.add({at, end, true});
        from = end;
      }
      at = end;
    });
    if (from < at) joiner.add({from, at, false});
    joiner.end();
  }

 private:
  bool (*is_match_)(char32_t);
  Behavior behavior_;
};

class Metaspace : public PreTokenizer {
 public:
  enum class Prepend { first, always, never };
  Metaspace(std::string mark, Prepend prepend, bool splits)
      : mark_(std::move(mark)), prepend_(prepend), splits_(splits) {}

  void split(Piece piece, const Take& take) const override {
    std::string text;
    text.reserve(piece.text.size() + piece.text.size() / 4 + mark_.size());
    const bool has_mark = piece.text.front() == ' ' || piece.text.substr(0, mark_.size()) == mark_;
    if (!has_mark && (prepend_ == Prepend::always || (prepend_ == Prepend::first && piece.is_first))) text = mark_;
    for (const char c : piece.text) c == ' ' ? text += mark_ : text += c;
    const Piece whole{text, piece.is_first};
    if (!splits_) return take(whole);
    std::size_t from = 0;
    for (std::size_t at = text.find(mark_, 1); at != std::string::npos; at = text.find(mark_, at + mark_.size())) {
      put(whole, from, at, take);
      from = at;
    }
    put(whole, from, text.size(), take);
  }

 private:
  std::string mark_;
  Prepend prepend_;
  bool splits_;
};

/// GPT-2's pattern on bytes, or no pattern at all.
class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(bool adds_space, bool has_pattern) : adds_space_(adds_space) {
    static constexpr const char* gpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
    if (has_pattern) split_ = std::make_unique<PatternSplit>(pcre_pattern(gpt2), Behavior::isolated, false);
  }

  void split(Piece piece, const Take& take) const override {
    std::string spaced;
    if (adds_space_ && piece.text.front() != ' ') {
      spaced = joined(" ", piece.text);
      piece.text = spaced;
    }
    split_ == nullptr ? take(piece) : split_->split(piece, take);
  }

 private:
  bool adds_space_;
  std::unique_ptr<PreTokenizer> split_;
};

/// Steps one after the other. Those behind `mapped` see characters that stand for bytes.
class Sequence : public PreTokenizer {
 public:
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  std::size_t mapped = static_cast<std::size_t>(-1);

  void split(Piece piece, const Take& take) const override { from(0, piece, take); }

 private:
  void from(std::size_t step, Piece piece, const Take& take) const {
    if (step == steps.size()) {
      if (step <= mapped) return take(piece);
      std::string bytes;
      bytes_of_characters(piece.text, &bytes);
      return take({bytes, piece.is_first});
    }
    if (step == mapped) {
      const std::string characters = characters_of_bytes(piece.text);
      return apply(step, {characters, piece.is_first}, take);
    }
    apply(step, piece, take);
  }
  void apply(std::size_t step, Piece piece, const Take& take) const {
    steps[step]->split(piece, [&](Piece part) { from(step + 1, part, take); });
  }
};

Behavior behavior_of(const json& step, Behavior otherwise) {
  if (field(step, "behavior").is_null()) return otherwise;
  const std::string name = string_field(step, "behavior");
  static const std::vector<std::pair<const char*, Behavior>> known = {
      {"Isolated", Behavior::isolated},
      {"Removed", Behavior::removed},
      {"MergedWithPrevious", Behavior::merged_with_previous},
      {"MergedWithNext", Behavior::merged_with_next},
      {"Contiguous", Behavior::contiguous}};
  for (const auto& [text, behavior] : known)
    if (name == text) return behavior;
  throw Error(joined("\"behavior\": expected Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous, got ",
                     in_quotes(name)));
}

std::unique_ptr<PreTokenizer> metaspace(const json& step) {
  const std::string mark = string_field(step, "replacement");
  if (mark.empty() || character_bytes(mark, 0) != static_cast<int>(mark.size()))
    throw Error(joined("\"replacement\": expected one character, got ", in_quotes(mark)));
  Metaspace::Prepend prepend =
      flag(step, "add_prefix_space", true) ? Metaspace::Prepend::always : Metaspace::Prepend::never;
  if (!field(step, "prepend_scheme").is_null()) {
    const std::string scheme = string_field(step, "prepend_scheme");
    if (scheme != "first" && scheme != "always" && scheme != "never")
      throw Error(joined("\"prepend_scheme\": expected first, always or never, got ", in_quotes(scheme)));
    prepend = scheme == "first"    ? Metaspace::Prepend::first
              : scheme == "always" ? Metaspace::Prepend::always
                                   : Metaspace::Prepend::never;
  }
  return std::make_unique<Metaspace>(mark, prepend, flag(step, "split", true));
}

std::unique_ptr<PreTokenizer> split_step(const json& step) {
  const json& pattern = field(step, "pattern");
  std::string text;
  if (field(pattern, "String").is_string())
    text = literal_pattern(string_field(pattern, "String"));
  else
    text = pcre_pattern(string_field(pattern, "Regex"));
  if (text.empty()) return nullptr;
  return std::make_unique<PatternSplit>(text, behavior_of(step, Behavior::isolated), flag(step, "invert", false));
}

/// Words, or runs of what is neither of them nor a space. Here a number is part of a word where it is decimal.
std::string word_pattern() {
  static constexpr const char* word = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d})";
  return joined("[", word, "]+|[^", word, space_class, "]+");
}

/// Appends what a step is made of; sequences in sequences become one.
void add_step(const json& step, Sequence* all) {
  const std::string type = type_of(step);
  std::unique_ptr<PreTokenizer> made;
  if (type == "Sequence") {
    const json& steps = field(step, "pretokenizers");
    if (!steps.is_array()) refuse_field(step, "pretokenizers", "a list");
    for (const json& part : steps) add_step(part, all);
    return;
  }
  if (type == "Split") {
    made = split_step(step);
  } else if (type == "Digits") {
    made = std::make_unique<ClassSplit>(
        is_number, flag(step, "individual_digits", false) ? Behavior::isolated : Behavior::contiguous);
  } else if (type == "ByteLevel") {
    if (all->mapped < all->steps.size()) throw Error("\"pre_tokenizer\": expected ByteLevel once, got it twice");
    made = std::make_unique<ByteLevel>(flag(step, "add_prefix_space", true), flag(step, "use_regex", true));
    all->mapped = all->steps.size() + 1;
  } else if (type == "Metaspace") {
    if (all->mapped <= all->steps.size())
      throw Error("\"pre_tokenizer\": expected Metaspace before ByteLevel, got it behind");
    made = metaspace(step);
  } else if (type == "Whitespace") {
    made = std::make_unique<PatternSplit>(word_pattern(), Behavior::removed, true);
  } else if (type == "WhitespaceSplit") {
    made = std::make_unique<ClassSplit>(is_space, Behavior::removed);
  } else if (type == "Punctuation") {
    made = std::make_unique<ClassSplit>(is_punctuation, behavior_of(step, Behavior::isolated));
  } else if (type == "BertPreTokenizer") {
    all->steps.push_back(std::make_unique<ClassSplit>(is_space, Behavior::removed));
    made = std::make_unique<ClassSplit>(is_punctuation, Behavior::isolated);
  } else {
    throw Error(joined(
        "\"pre_tokenizer\": expected BertPreTokenizer, ByteLevel, Digits, Metaspace, Punctuation, Sequence, Split, "
        "Whitespace or WhitespaceSplit, got ",
        in_quotes(type)));
  }
  if (made != nullptr) all->steps.push_back(std::move(made));
  constexpr std::size_t most_steps = 64;  // a piece walks through all of them by recursion
  if (all->steps.size() > most_steps)
    throw Error(joined("\"pre_tokenizer\": expected at most ", most_steps, " steps, got more"));
}

}  // namespace

std::unique_ptr<PreTokenizer> pattern_pre_tokenizer(const std::vector<std::string>& patterns) {
  auto all = std::make_unique<Sequence>();
  for (const std::string& pattern : patterns)
    all->steps.push_back(std::make_unique<PatternSplit>(pattern, Behavior::isolated, false));
  return all;
}

std::unique_ptr<PreTokenizer> json_pre_tokenizer(const json& description, bool* is_byte_level) {
  auto all = std::make_unique<Sequence>();
  if (!description.is_null()) add_step(description, all.get());
  constexpr auto nowhere = static_cast<std::size_t>(-1);
  *is_byte_level = all->mapped != nowhere;
  if (all->mapped == all->steps.size()) all->mapped = nowhere;
  return all;
}

}  // namespace bie::text
