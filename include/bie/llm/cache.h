// What a model keeps of the tokens it has read: keys and values, in pages of 64 positions.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bie/kernels/attention.h"
#include "bie/llm/config.h"

namespace bie::llm {

/// Blocks of all layers for 64 positions.
using Page = std::shared_ptr<float[]>;

/// A text as the model has read it. Copies share their pages; a page that is shared is copied before it is written to.
class Sequence {
 public:
  explicit Sequence(const Config& config);

  std::int64_t length() const { return static_cast<std::int64_t>(tokens_.size()); }
  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  /// Forgets all but the first `length` tokens.
  void cut(std::int64_t length);

  /// Makes room for more tokens and appends them; their keys and values are then to be stored.
  /// @throws std::bad_alloc; nothing is appended then.
  void append(const std::int32_t* tokens, std::int64_t count);

  const kernels::AttentionShape& shape() const { return shape_; }
  float* block(std::int64_t layer, std::int64_t index) {
    return pages_[static_cast<std::size_t>(index)].get() + layer * shape_.block_floats();
  }
  std::int64_t pages() const { return static_cast<std::int64_t>(pages_.size()); }
  /// Bytes of one page of a model.
  static std::int64_t page_bytes(const Config& config);

 private:
  kernels::AttentionShape shape_;
  std::int64_t page_floats_;
  std::vector<std::int32_t> tokens_;
  std::vector<Page> pages_;
};

}  // namespace bie::llm
