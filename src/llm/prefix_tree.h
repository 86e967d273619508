// Texts that the model has read, in a tree of pages: a text that begins like another shares its pages.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "bie/llm/cache.h"

namespace bie::llm {

/// A node stands for the tokens of a page, 64 or in the end of a text fewer, and for all tokens before it, which decide
/// its bits.
class PrefixTree {
 public:
  /// A sequence becomes the longest beginning of the tokens that the tree has, where that is longer than what the
  /// sequence has read of them. The last token is always left to be read.
  void lend(const std::vector<std::int32_t>& tokens, Sequence& sequence);
  /// Keeps the whole pages of a sequence, unless its first ones have been given back.
  /// @param with_rest  the last page too, which is not full: who writes on copies it.
  void keep(const Sequence& sequence, bool with_rest = false);
  /// Gives back the page that was lent or kept the longest ago, of those at the ends of texts that no sequence holds.
  /// False where there is none.
  bool drop_one();
  /// Pages that are kept.
  std::int64_t pages() const { return pages_; }

 private:
  struct Node;
  using Children = std::map<std::vector<std::int32_t>, std::unique_ptr<Node>>;
  struct Node {
    Page page;
    std::uint64_t used = 0;
    Children children;
  };
  struct Place {
    Children* among = nullptr;
    Children::iterator at;
  };
  static void find_oldest(Children& children, Place* oldest);

  Children roots_;
  std::uint64_t clock_ = 0;
  std::int64_t pages_ = 0;
};

}  // namespace bie::llm
