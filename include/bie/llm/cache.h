// The KV cache: keys and values of the tokens that a model has read, in pages of 64 positions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "bie/kernels/attention.h"
#include "bie/llm/config.h"

namespace bie::llm {

/// How keys and values are kept.
enum class CacheKind : std::uint8_t {
  q8,   ///< 8-bit codes with steps: attention is two products of integers
  f32,  ///< as they are
};

/// Codes where heads have groups of 16 for them, else floats.
CacheKind possible_kind(const Config& config, CacheKind wanted);

/// Blocks of all layers for 64 positions.
using Page = std::shared_ptr<std::byte>;

/// A text as the model has read it. Copies share their pages; a page that is shared is copied before it is written to.
class Sequence {
 public:
  Sequence(const Config& config, CacheKind kind);

  std::int64_t length() const { return static_cast<std::int64_t>(tokens_.size()); }
  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  /// Forgets all but the first `length` tokens.
  void cut(std::int64_t length);

  /// Makes room for more tokens and appends them; their keys and values are then to be stored.
  /// @throws std::bad_alloc; nothing is appended then.
  void append(const std::int32_t* tokens, std::int64_t count);

  const kernels::AttentionShape& shape() const { return shape_; }
  /// Whether it was made for the model with this configuration and has this kind of cache.
  bool fits(const Config& config, CacheKind kind) const;
  const void* block(std::int64_t layer, std::int64_t index) const {
    return pages_[static_cast<std::size_t>(index)].get() + layer * block_bytes_;
  }
  /// Puts a key and a value [kv_heads][head_size] at a position that has been appended.
  void store(std::int64_t layer, std::int64_t position, const float* key, const float* value);
  std::int64_t pages() const { return static_cast<std::int64_t>(pages_.size()); }
  /// Bytes of one page of a model.
  static std::int64_t page_bytes(const Config& config, CacheKind kind);

 private:
  const Config* config_;  ///< names the model; never read, as the model may be gone
  kernels::AttentionShape shape_;
  CacheKind kind_;
  std::int64_t block_bytes_, page_bytes_;
  std::vector<std::int32_t> tokens_;
  std::vector<Page> pages_;
};

}  // namespace bie::llm
