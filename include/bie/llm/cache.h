// The KV cache: keys and values of the tokens that a model has read, in pages of 64 positions.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "bie/kernels/attention.h"
#include "bie/llm/config.h"

namespace bie::llm {

/// How keys and values are kept.
enum class CacheKind : std::uint8_t {
  q8,   ///< 8-bit codes with steps: attention is two products of integers; keys of float16 in LayerConfig::half_keys
  f16,  ///< rounded once
  f32,  ///< as they are
};

/// "q8", "f16", "f32"
const char* name(CacheKind kind);

/// Codes where heads have groups of 16 for them, else floats.
CacheKind possible_kind(const Config& config, CacheKind wanted);

/// Kernels over the pages of a layer.
kernels::Table<kernels::AttentionKernel> attention_kernels(CacheKind kind, bool half_keys);

/// Blocks of all layers for 64 positions.
using Page = std::shared_ptr<std::byte>;

/// How many pages there are of those that sequences took while they counted here.
using PageCount = std::shared_ptr<std::atomic<std::int64_t>>;

/// Zeros, so that no byte of a page is left to chance. @throws std::bad_alloc
Page new_page(std::int64_t bytes, const PageCount& count);

/// A text as the model has read it. Copies share their pages; a page that is shared is copied before it is written to.
class Sequence {
 public:
  Sequence(const Config& config, CacheKind kind);

  std::int64_t length() const { return static_cast<std::int64_t>(tokens_.size()); }
  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  /// Forgets all but the first `length` tokens, at least `least_cut()` or none at all.
  void cut(std::int64_t length);
  /// The shortest text but an empty one for which all that its next token sees is still there.
  std::int64_t least_cut() const;

  /// Makes room for more tokens and appends them; their keys and values are then to be stored. Pages that no token from
  /// here on sees are given back.
  /// @throws std::bad_alloc; nothing is appended then.
  void append(const std::int32_t* tokens, std::int64_t count);

  const kernels::AttentionShape& shape() const { return shape_; }
  /// Whether it was made for the model with this configuration and has this kind of cache.
  bool fits(const Config& config, CacheKind kind) const;
  /// Null where the page has been given back.
  const void* block(std::int64_t layer, std::int64_t index) const {
    const std::byte* const page = pages_[static_cast<std::size_t>(index)].get();
    return page == nullptr ? nullptr : page + block_at_[static_cast<std::size_t>(layer)];
  }
  /// Puts a key and a value [kv_heads][head_size] at a position that has been appended.
  void store(std::int64_t layer, std::int64_t position, const float* key, const float* value);
  std::int64_t pages() const { return static_cast<std::int64_t>(pages_.size()); }
  /// Pages that the next `count` tokens take: those that are to come, and a copy of the last one where it is shared.
  std::int64_t pages_to_append(std::int64_t count) const;
  /// From here on pages that this sequence and its copies take are counted, until the last holder has let go of them.
  void count_pages(PageCount count) { count_ = std::move(count); }
  /// Pages at the beginning that have been given back.
  std::int64_t given_back() const { return given_back_; }
  CacheKind kind() const { return kind_; }
  /// Bytes of one page of a model.
  static std::int64_t page_bytes(const Config& config, CacheKind kind);
  const std::byte* page(std::int64_t index) const { return pages_[static_cast<std::size_t>(index)].get(); }
  const Page& shared_page(std::int64_t index) const { return pages_[static_cast<std::size_t>(index)]; }
  /// Becomes a text that it shares with whoever has read it; the last page may hold more than the text has.
  void begin_with(std::vector<std::int32_t> tokens, std::vector<Page> pages);
  /// An empty sequence becomes one of these tokens, whose first pages are given back and whose others hold `bytes`,
  /// one behind the other.
  /// @throws std::bad_alloc; it is empty then.
  void restore(const std::vector<std::int32_t>& tokens, std::int64_t given_back, const std::byte* bytes);

 private:
  const Config* config_;  ///< names the model; never read, as the model may be gone
  kernels::AttentionShape shape_;
  CacheKind kind_;
  std::vector<bool> half_keys_;
  std::vector<std::int64_t> block_at_;  ///< of each layer, in a page
  std::int64_t page_bytes_;
  std::int64_t window_, given_back_ = 0;
  std::vector<std::int32_t> tokens_;
  std::vector<Page> pages_;
  PageCount count_;
};

}  // namespace bie::llm
