#include "bie/llm/cache.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "bie/kernels/attention_q8.h"

namespace bie::llm {

namespace {

kernels::AttentionShape shape_of(const Config& c) { return {c.heads, c.kv_heads, c.head_size, c.scale}; }

std::int64_t block_bytes(const kernels::AttentionShape& shape, CacheKind kind) {
  return kind == CacheKind::q8 ? kernels::attention_q8_block_bytes(shape) : kernels::attention_block_bytes(shape);
}

Page new_page(std::int64_t bytes) {
  void* const memory = std::aligned_alloc(64, static_cast<std::size_t>(bytes));  // blocks have multiples of 64
  if (memory == nullptr) throw std::bad_alloc();
  return {static_cast<std::byte*>(memory), std::free};
}

}  // namespace

CacheKind possible_kind(const Config& config, CacheKind wanted) {
  return kernels::takes_q8(shape_of(config)) ? wanted : CacheKind::f32;
}

Sequence::Sequence(const Config& c, CacheKind kind)
    : config_(&c),
      shape_(shape_of(c)),
      kind_(possible_kind(c, kind)),
      block_bytes_(block_bytes(shape_, kind_)),
      page_bytes_(c.layers * block_bytes_) {}

bool Sequence::fits(const Config& config, CacheKind kind) const {
  const kernels::AttentionShape shape = shape_of(config);
  return config_ == &config && kind_ == kind && shape_.heads == shape.heads && shape_.kv_heads == shape.kv_heads &&
         shape_.head_size == shape.head_size && page_bytes_ == page_bytes(config, kind);
}

std::int64_t Sequence::page_bytes(const Config& c, CacheKind kind) {
  return c.layers * block_bytes(shape_of(c), possible_kind(c, kind));
}

void Sequence::store(std::int64_t layer, std::int64_t position, const float* key, const float* value) {
  void* const block =
      pages_[static_cast<std::size_t>(position / kernels::attention_block)].get() + layer * block_bytes_;
  if (kind_ == CacheKind::q8)
    kernels::store_q8_position(shape_, position, key, value, block);
  else
    kernels::store_position(shape_, position, key, value, block);
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
  if (count > 0 && length() % kernels::attention_block != 0) {
    if (pages.back().use_count() > 2) {
      Page own = new_page(page_bytes_);
      std::memcpy(own.get(), pages.back().get(), static_cast<std::size_t>(page_bytes_));
      pages.back() = std::move(own);
    } else {
      // A thread that copied the page for itself has read all of it before this holder is counted out.
      const Page holder = pages.back();
    }
  }
  while (pages.size() < wanted) pages.push_back(new_page(page_bytes_));
  tokens_.insert(tokens_.end(), tokens, tokens + count);
  pages_ = std::move(pages);
}

}  // namespace bie::llm
