#include "llm/folder/vocabulary_metadata.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "bie/formats/error.h"
#include "bie/text/vocabulary.h"
#include "llm/folder/padded_vocabulary.h"

namespace bie::llm::folder {
namespace {

using formats::GgufValue;
using formats::GgufValueType;
using text::Vocabulary;

class Writer {
 public:
  explicit Writer(std::map<std::string, GgufValue>* metadata) : metadata_(*metadata) {}

  void text(const char* key, std::string value) { put(key, {GgufValueType::string, std::move(value)}); }
  void texts(const char* key, std::vector<std::string> list) { put(key, {GgufValueType::string, std::move(list)}); }
  void flag(const char* key, std::optional<bool> value) {
    if (value) put(key, {GgufValueType::boolean, static_cast<std::uint64_t>(*value)});
  }
  void id(const char* key, std::optional<std::int32_t> value) {
    if (value) put(key, {GgufValueType::u32, static_cast<std::uint64_t>(*value)});
  }
  void put(const char* key, GgufValue value) { metadata_[std::string("tokenizer.ggml.") + key] = std::move(value); }

 private:
  std::map<std::string, GgufValue>& metadata_;
};

/// GGUF knows one end of an answer besides EOS.
std::optional<std::int32_t> other_end(const Vocabulary& v) {
  if (v.eot) return v.eot;
  for (const std::int32_t end : v.ends)
    if (end != v.eos) return end;
  return std::nullopt;
}

}  // namespace

void put_vocabulary(const std::string& path, std::int64_t rows, std::map<std::string, GgufValue>* metadata) {
  Vocabulary v = padded_vocabulary(path, rows);
  std::string scheme = text::gguf_scheme(v);
  const std::string pieces = (std::filesystem::path(path) / "tokenizer.model").string();
  if (std::error_code error; scheme.empty() && std::filesystem::exists(pieces, error)) {
    v = padded_vocabulary(pieces, rows);  // GGUF has names for SentencePiece's own file
    scheme = text::gguf_scheme(v);
  }
  if (scheme.empty()) formats::fail_file("folder", path, "expected a tokenizer that GGUF has a name for, got another");
  Writer to(metadata);
  to.text("model", scheme);
  to.texts("tokens", v.tokens);
  std::vector<std::int64_t> kinds;
  for (const Vocabulary::Kind kind : v.kinds) kinds.push_back(static_cast<std::int64_t>(kind));
  to.put("token_type", {GgufValueType::i32, std::move(kinds)});
  if (scheme == "gpt2") {
    to.text("pre", text::gguf_rule(v));
    std::vector<std::string> merges;
    for (const auto& [left, right] : v.merges) merges.push_back(left + " " + right);
    to.texts("merges", std::move(merges));
  } else {
    to.text("pre", "default");
    if (!v.scores.empty()) to.put("scores", {GgufValueType::f32, v.scores});
    to.flag("add_space_prefix", v.adds_space);
    if (v.removes_spaces) to.flag("remove_extra_whitespaces", true);
    if (!v.charsmap.empty()) {
      std::vector<std::uint64_t> bytes;
      for (const char c : v.charsmap) bytes.push_back(static_cast<unsigned char>(c));
      to.put("precompiled_charsmap", {GgufValueType::u8, std::move(bytes)});
    }
  }
  to.id("bos_token_id", v.bos);
  to.id("eos_token_id", v.eos);
  to.id("eot_token_id", other_end(v));
  to.id("unknown_token_id", v.unknown);
  to.id("padding_token_id", v.padding);
  to.flag("add_bos_token", v.adds_bos.value_or(v.bos && v.before == std::vector{*v.bos}));
  to.flag("add_eos_token", v.adds_eos.value_or(v.eos && v.after == std::vector{*v.eos}));
}

}  // namespace bie::llm::folder
