#include "bie/llm/cache_file.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "bie/formats/replacing_file.h"
#include "llm/cache_format.h"

namespace bie::llm {
namespace {

bool is_there(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

}  // namespace

std::int64_t load_cache(const std::string& path, const std::vector<std::int32_t>& tokens, const Model& model,
                        Sequence& sequence) {
  static_cast<void>(
      formats::destination_of("cache file", path));  // it will be written to: refused before the prompt is read
  if (!is_there(path)) return 0;
  const CacheFile file(path, cache_head(model, sequence.kind()));
  const auto most = std::min(file.tokens().size(), tokens.size() - 1);
  std::size_t common = 0;
  while (common < most && file.tokens()[common] == tokens[common]) ++common;
  Sequence restored = sequence;
  const auto first = tokens.begin();
  const auto count = static_cast<std::int64_t>(common);
  if (count <= file.given_back() * kernels::attention_block) return 0;
  restored.restore({first, first + count}, file.given_back(), file.pages(count));
  if (count < restored.least_cut()) return 0;
  sequence = std::move(restored);
  return count;
}

void save_cache(const std::string& path, const Model& model, const Sequence& sequence) {
  const CacheHead head = cache_head(model, sequence.kind());
  if (is_there(path)) {
    const CacheFile file(path, head);
    const std::vector<std::int32_t>& there = file.tokens();
    if (there.size() >= sequence.tokens().size() &&
        std::equal(sequence.tokens().begin(), sequence.tokens().end(), there.begin()))
      return;
  }
  std::vector<const std::byte*> pages;
  for (std::int64_t p = sequence.given_back(); p < sequence.pages(); ++p) pages.push_back(sequence.page(p));
  write_cache_file(path, head, sequence.tokens(), sequence.given_back(), pages);
}

}  // namespace bie::llm
