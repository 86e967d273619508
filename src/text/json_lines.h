// Writes JSON whose members keep their order, one a line.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bie/text/vocabulary.h"

namespace bie::text {

inline std::string json_text(const std::string& text) { return nlohmann::json(text).dump(); }
inline const char* truth(bool value) { return value ? "true" : "false"; }

/// The text of a JSON object whose keys keep their order, or of a list.
class Lines {
 public:
  void add(const char* key, const std::string& value) { add(json_text(key) + ": " + value); }
  void add(const std::string& line) {
    text_ += text_.empty() ? "\n" : ",\n";
    text_ += line;
  }
  std::string object() const { return "{" + text_ + "}"; }
  std::string list() const { return "[" + text_ + "]"; }

 private:
  std::string text_;
};

/// Whether a tokenizer looks for the names of such tokens in texts.
inline bool is_added(Vocabulary::Kind kind) {
  return kind == Vocabulary::Kind::control || kind == Vocabulary::Kind::user_defined;
}

/// A control or user-defined token as libraries want it described; `id` is a field before the others, or none.
inline std::string added_token(const std::string& id, const std::string& name, Vocabulary::Kind kind) {
  return "{" + id + "\"content\": " + json_text(name) +
         R"(, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": )" +
         truth(kind == Vocabulary::Kind::control) + "}";
}

}  // namespace bie::text
