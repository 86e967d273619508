#include "llm/folder/padded_vocabulary.h"

#include "bie/formats/error.h"

namespace bie::llm::folder {

text::Vocabulary padded_vocabulary(const std::string& path, std::int64_t rows) {
  text::Vocabulary v = text::folder_vocabulary(path);
  const auto tokens = static_cast<std::int64_t>(v.tokens.size());
  if (tokens > rows)
    formats::fail_file("folder", path, "expected at most as many tokens as rows of the embedding, ", rows, ", got ",
                       tokens);
  const bool has_scores = !v.scores.empty();
  for (std::int64_t i = tokens; i < rows; ++i) {
    v.tokens.push_back(formats::joined("[PAD", i, "]"));
    v.kinds.push_back(text::Vocabulary::Kind::unused);
    if (has_scores) v.scores.push_back(0);
  }
  return v;
}

}  // namespace bie::llm::folder
