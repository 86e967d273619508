#include "bie/llm/cache.h"

#include <algorithm>
#include <cstring>

namespace bie::llm {

Sequence::Sequence(const Config& c)
    : shape_{c.heads, c.kv_heads, c.head_size, c.scale}, page_floats_(c.layers * shape_.block_floats()) {}

std::int64_t Sequence::page_bytes(const Config& c) {
  return 4 * c.layers * kernels::AttentionShape{c.heads, c.kv_heads, c.head_size, c.scale}.block_floats();
}

void Sequence::cut(std::int64_t length) {
  tokens_.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(length, 0, this->length())));
  pages_.resize(static_cast<std::size_t>((this->length() + kernels::attention_block - 1) / kernels::attention_block));
}

void Sequence::append(const std::int32_t* tokens, std::int64_t count) {
  const std::int64_t end = length() + count;
  const auto wanted = static_cast<std::size_t>((end + kernels::attention_block - 1) / kernels::attention_block);
  std::vector<Page> pages = pages_;
  // The last page is written to from here on: it must be nobody else's. Both vectors hold it.
  if (count > 0 && length() % kernels::attention_block != 0 && pages.back().use_count() > 2) {
    Page own(new float[static_cast<std::size_t>(page_floats_)]);
    std::memcpy(own.get(), pages.back().get(), static_cast<std::size_t>(page_floats_) * sizeof(float));
    pages.back() = std::move(own);
  }
  while (pages.size() < wanted) pages.emplace_back(new float[static_cast<std::size_t>(page_floats_)]);
  tokens_.insert(tokens_.end(), tokens, tokens + count);
  pages_ = std::move(pages);
}

}  // namespace bie::llm
