#include "bie/llm/cache.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "bie/kernels/attention_q8.h"

namespace bie::llm {

namespace {

constexpr std::int64_t positions = kernels::attention_block;  // of a page

kernels::AttentionShape shape_of(const Config& c) { return {c.heads, c.kv_heads, c.head_size, c.scale, c.score_cap}; }

/// Traits per kind of cache, in the order of CacheKind; the last row is codes with keys of float16.
struct Form {
  const char* name;
  kernels::Table<kernels::AttentionKernel> (*kernels)();
  std::int64_t (*block_bytes)(const kernels::AttentionShape&);
  void (*store)(const kernels::AttentionShape&, std::int64_t, const float*, const float*, void*);
};

constexpr Form forms[] = {
    {"q8", kernels::attention_q8_table, kernels::attention_q8_block_bytes, kernels::store_q8_position},
    {"f16", kernels::attention_f16_table, kernels::attention_f16_block_bytes, kernels::store_f16_position},
    {"f32", kernels::attention_table, kernels::attention_block_bytes, kernels::store_position},
    {"q8", kernels::attention_q8_f16_keys_table, kernels::attention_q8_f16_keys_block_bytes,
     kernels::store_q8_f16_keys_position}};

const Form& form_of(CacheKind kind, bool half_keys) {
  return kind == CacheKind::q8 && half_keys ? forms[3] : forms[static_cast<int>(kind)];
}

/// Where each layer's block begins in a page; behind them, the bytes of a page.
std::vector<std::int64_t> places_of(const Config& c, CacheKind kind) {
  std::vector<std::int64_t> places{0};
  for (std::int64_t i = 0; i < c.layers; ++i)
    places.push_back(places.back() + form_of(kind, c.layer(i).half_keys).block_bytes(shape_of(c)));
  return places;
}

std::int64_t pages_of(std::int64_t tokens) { return (tokens + positions - 1) / positions; }

}  // namespace

Page new_page(std::int64_t bytes, const PageCount& count) {
  void* const memory = std::aligned_alloc(64, static_cast<std::size_t>(bytes));  // blocks have multiples of 64
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, static_cast<std::size_t>(bytes));
  if (count == nullptr) return {static_cast<std::byte*>(memory), std::free};
  ++*count;
  return {static_cast<std::byte*>(memory), [count](std::byte* bytes_of_page) {
            std::free(bytes_of_page);
            --*count;
          }};
}

const char* name(CacheKind kind) { return form_of(kind, false).name; }

kernels::Table<kernels::AttentionKernel> attention_kernels(CacheKind kind, bool half_keys) {
  return form_of(kind, half_keys).kernels();
}

CacheKind possible_kind(const Config& config, CacheKind wanted) {
  return wanted != CacheKind::q8 || kernels::takes_q8(shape_of(config)) ? wanted : CacheKind::f32;
}

Sequence::Sequence(const Config& c, CacheKind kind)
    : config_(&c),
      shape_(shape_of(c)),
      kind_(possible_kind(c, kind)),
      block_at_(places_of(c, kind_)),
      page_bytes_(block_at_.back()),
      window_(c.window()) {
  for (const LayerConfig& layer : c.per_layer) half_keys_.push_back(layer.half_keys);
}

bool Sequence::fits(const Config& config, CacheKind kind) const {
  const kernels::AttentionShape shape = shape_of(config);
  return config_ == &config && kind_ == kind && shape_.heads == shape.heads && shape_.kv_heads == shape.kv_heads &&
         shape_.head_size == shape.head_size && page_bytes_ == page_bytes(config, kind);
}

std::int64_t Sequence::page_bytes(const Config& c, CacheKind kind) {
  return places_of(c, possible_kind(c, kind)).back();
}

void Sequence::store(std::int64_t layer, std::int64_t position, const float* key, const float* value) {
  const auto at = static_cast<std::size_t>(layer);
  void* const block = pages_[static_cast<std::size_t>(position / positions)].get() + block_at_[at];
  form_of(kind_, half_keys_[at]).store(shape_, position, key, value, block);
}

std::int64_t Sequence::least_cut() const { return given_back_ == 0 ? 0 : given_back_ * positions + window_ - 1; }

void Sequence::cut(std::int64_t length) {
  tokens_.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(length, 0, this->length())));
  pages_.resize(static_cast<std::size_t>(pages_of(this->length())));
  if (tokens_.empty()) given_back_ = 0;
}

void Sequence::append(const std::int32_t* tokens, std::int64_t count) {
  const auto wanted = static_cast<std::size_t>(pages_of(length() + count));
  std::vector<Page> pages = pages_;
  // The last page is written to from here on: it must be nobody else's. Both vectors hold it.
  if (count > 0 && length() % positions != 0) {
    if (pages.back().use_count() > 2) {
      Page own = new_page(page_bytes_, count_);
      std::memcpy(own.get(), pages.back().get(), static_cast<std::size_t>(page_bytes_));
      pages.back() = std::move(own);
    } else {
      // A thread that copied the page for itself has read all of it before this holder is counted out.
      const Page holder = pages.back();  // NOLINT(performance-unnecessary-copy-initialization)
    }
  }
  while (pages.size() < wanted) pages.push_back(new_page(page_bytes_, count_));
  const std::int64_t first_seen = window_ == 0 ? 0 : std::max<std::int64_t>(0, length() - window_ + 1);
  const std::int64_t unseen = count > 0 ? std::max(given_back_, first_seen / positions) : given_back_;
  tokens_.insert(tokens_.end(), tokens, tokens + count);
  for (std::int64_t p = given_back_; p < unseen; ++p) pages[static_cast<std::size_t>(p)].reset();
  given_back_ = unseen;
  pages_ = std::move(pages);
}

std::int64_t Sequence::pages_to_append(std::int64_t count) const {
  const bool copies = count > 0 && length() % positions != 0 && pages_.back().use_count() > 1;
  return pages_of(length() + count) - pages() + (copies ? 1 : 0);
}

void Sequence::begin_with(std::vector<std::int32_t> tokens, std::vector<Page> pages) {
  tokens_ = std::move(tokens);
  pages_ = std::move(pages);
  given_back_ = 0;
}

void Sequence::restore(const std::vector<std::int32_t>& tokens, std::int64_t given_back, const std::byte* bytes) {
  std::vector<Page> pages(static_cast<std::size_t>(given_back));
  for (std::int64_t p = given_back; p < pages_of(static_cast<std::int64_t>(tokens.size())); ++p, bytes += page_bytes_) {
    pages.push_back(new_page(page_bytes_, count_));
    std::memcpy(pages.back().get(), bytes, static_cast<std::size_t>(page_bytes_));
  }
  tokens_ = tokens;
  pages_ = std::move(pages);
  given_back_ = given_back;
}

}  // namespace bie::llm
