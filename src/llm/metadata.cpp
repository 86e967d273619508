#include "llm/metadata.h"

#include <limits>

#include "bie/formats/error.h"

namespace bie::llm {
namespace {

std::string key_words(const std::string& key) { return "the metadata " + formats::in_quotes(key); }

}  // namespace

void Metadata::fail(const std::string& sentence) const { file_.fail(sentence); }

std::optional<std::string> Metadata::text(const std::string& key) const {
  const auto found = file_.gguf.metadata.find(key);
  if (found == file_.gguf.metadata.end()) return std::nullopt;
  if (const auto* value = std::get_if<std::string>(&found->second.value)) return *value;
  fail(key_words(key) + " is expected to be a text");
}

std::optional<double> Metadata::real(const std::string& key) const {
  const auto found = file_.gguf.metadata.find(key);
  if (found == file_.gguf.metadata.end()) return std::nullopt;
  if (const auto* value = std::get_if<double>(&found->second.value)) return *value;
  return static_cast<double>(*whole(key));
}

std::optional<std::int64_t> Metadata::whole(const std::string& key) const {
  const auto found = file_.gguf.metadata.find(key);
  if (found == file_.gguf.metadata.end()) return std::nullopt;
  if (const auto* value = std::get_if<std::int64_t>(&found->second.value)) return *value;
  if (const auto* value = std::get_if<std::uint64_t>(&found->second.value);
      value != nullptr && *value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return static_cast<std::int64_t>(*value);
  fail(key_words(key) + " is expected to be a whole number");
}

std::int64_t Metadata::whole(const std::string& key, std::int64_t least, std::int64_t most,
                             std::optional<std::int64_t> otherwise) const {
  std::optional<std::int64_t> value = whole(key);
  if (!value) value = otherwise;
  if (!value) fail(key_words(key) + " is missing");
  if (*value < least || *value > most)
    fail(formats::joined(key_words(key), ": expected ", least, " to ", most, ", got ", *value));
  return *value;
}

double Metadata::real(const std::string& key, double least, double most, std::optional<double> otherwise) const {
  std::optional<double> value = real(key);
  if (!value) value = otherwise;
  if (!value) fail(key_words(key) + " is missing");
  if (!(*value >= least && *value <= most))
    fail(formats::joined(key_words(key), ": expected ", least, " to ", most, ", got ", *value));
  return *value;
}

}  // namespace bie::llm
