#include "llm/folder/padded_vocabulary.h"

#include "bie/formats/error.h"

namespace bie::llm::folder {

text::Vocabulary padded_vocabulary(const std::string& path, std::int64_t rows) {
  text::Vocabulary v = text::folder_vocabulary(path);
  const auto tokens = static_cast<std::int64_t>(v.tokens.size());
  if (tokens > rows)
    formats::fail_file("folder", path, "expected at most as many tokens as rows of the embedding, ", rows, ", got ",
                       tokens);
  const auto count = static_cast<std::size_t>(rows);
  if (!v.scores.empty()) v.scores.resize(count);
  v.kinds.resize(count, text::Vocabulary::Kind::unused);
  v.tokens.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (!v.tokens[i].empty()) continue;
    v.tokens[i] = formats::joined("[PAD", i, "]");
    v.kinds[i] = text::Vocabulary::Kind::unused;
  }
  return v;
}

}  // namespace bie::llm::folder
