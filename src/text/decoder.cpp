#include "text/decoder.h"

#include "text/byte_characters.h"
#include "text/json_fields.h"
#include "text/sentence_pieces.h"

namespace bie::text {
namespace {

using formats::Error;
using formats::in_quotes;
using formats::joined;
using nlohmann::json;

/// English as it is written: no space before a full stop. Source: transformers, clean_up_tokenization.
std::string cleaned(std::string text) {
  static const std::vector<std::pair<const char*, const char*>> replacements = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [what, with] : replacements) text = replaced(text, what, with);
  return text;
}

std::size_t whole_number(const json& step, const char* key) {
  if (!formats::is_whole(field(step, key), 0, 1000)) refuse_field(step, key, "a number from 0 to 1000");
  return field(step, key).get<std::size_t>();
}

}  // namespace

Decoder::Decoder(const json& description) {
  if (!description.is_null()) {
    add(description);
    return;
  }
  steps_.push_back({Step::Kind::space, "", "", 0, 0, false});
  strips_space_ = true;
}

void Decoder::add(const json& step) {
  constexpr std::size_t most_steps = 64;
  if (steps_.size() > most_steps) throw Error(joined("\"decoder\": expected at most ", most_steps, " steps, got more"));
  const std::string type = type_of(step);
  if (type == "Sequence") {
    const json& steps = field(step, "decoders");
    if (!steps.is_array()) refuse_field(step, "decoders", "a list");
    for (const json& part : steps) add(part);
    return;
  }
  if (type == "Fuse") {
    is_fused_ = true;
    return;
  }
  if (type == "Strip") {
    const Step strip{Step::Kind::strip,           string_field(step, "content"), "",
                     whole_number(step, "start"), whole_number(step, "stop"),    false};
    if (!is_fused_) {
      steps_.push_back(strip);
      return;
    }
    if (strip.count + strip.at_end == 0) return;
    if (strip.text != " " || strip.count != 1 || strip.at_end != 0)
      throw Error("\"decoder\": expected a Strip behind Fuse that takes a space from the left, got another one");
    strips_space_ = true;
    return;
  }
  if (is_fused_) throw Error(joined("\"decoder\": expected Strip behind Fuse, got ", in_quotes(type)));
  if (type == "ByteLevel") {
    steps_.push_back({Step::Kind::bytes, "", "", 0, 0, false});
  } else if (type == "ByteFallback") {
    steps_.push_back({Step::Kind::byte_fallback, "", "", 0, 0, false});
  } else if (type == "Replace") {
    const json& pattern = field(step, "pattern");
    steps_.push_back(
        {Step::Kind::replace, string_field(pattern, "String"), string_field(step, "content"), 0, 0, false});
  } else if (type == "Metaspace") {
    steps_.push_back({Step::Kind::replace, string_field(step, "replacement"), " ", 0, 0, false});
    const bool adds = flag(step, "add_prefix_space", true);
    strips_space_ = field(step, "prepend_scheme").is_null() ? adds : string_field(step, "prepend_scheme") != "never";
  } else if (type == "WordPiece") {
    steps_.push_back({Step::Kind::words, string_field(step, "prefix"), "", 0, 0, flag(step, "cleanup", true)});
    strips_space_ = true;
  } else {
    throw Error(
        joined("\"decoder\": expected ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip or "
               "WordPiece, got ",
               in_quotes(type)));
  }
}

std::string Decoder::applied(const Step& step, const std::string& text) {
  switch (step.kind) {
    case Step::Kind::space: return joined(" ", text);
    case Step::Kind::bytes: {
      std::string bytes;
      return bytes_of_characters(text, &bytes) ? bytes : text;
    }
    case Step::Kind::byte_fallback: {
      const std::optional<char> byte = SentencePieces::fallback_byte(text);
      return byte ? std::string(1, *byte) : text;
    }
    case Step::Kind::replace: return step.text.empty() ? text : replaced(text, step.text, step.with);
    case Step::Kind::strip: {
      std::string_view left = text;
      const auto is_there = [&](bool at_end) {
        return !step.text.empty() && left.size() >= step.text.size() &&
               left.substr(at_end ? left.size() - step.text.size() : 0, step.text.size()) == step.text;
      };
      for (std::size_t i = 0; i < step.count && is_there(false); ++i) left.remove_prefix(step.text.size());
      for (std::size_t i = 0; i < step.at_end && is_there(true); ++i) left.remove_suffix(step.text.size());
      return std::string(left);
    }
    case Step::Kind::words: {
      const bool goes_on = !step.text.empty() && text.compare(0, step.text.size(), step.text) == 0;
      std::string word = goes_on ? text.substr(step.text.size()) : joined(" ", text);
      return step.cleans ? cleaned(word) : word;
    }
  }
  return text;
}

std::string Decoder::bytes(std::string_view name) const {
  std::string text(name);
  for (const Step& step : steps_) {
    text = applied(step, text);
    if (text.size() > 4096 + 16 * name.size())
      throw Error(
          joined("\"decoder\": expected short texts of tokens, got ", text.size(), " bytes of ", in_quotes(name)));
  }
  return text;
}

}  // namespace bie::text
