// Texts that the model has read, in a tree of pages: a text that begins like another shares its pages.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "bie/llm/cache.h"

namespace bie::llm {

/// Where pages are that the tree lacks.
class PageSource {
 public:
  virtual ~PageSource() = default;
  /// The page at the end of a text's first `length` tokens, or null.
  virtual Page find(const std::vector<std::int32_t>& tokens, std::int64_t length) = 0;
  /// Is told of such a page that the tree has got.
  virtual void take(const std::vector<std::int32_t>& tokens, std::int64_t length, const Page& page) = 0;
};

/// A node stands for the tokens of a page, 64 or in the end of a text fewer, and for all tokens before it, which decide
/// its bits.
class PrefixTree {
 public:
  /// @param source  null, or outlives the tree. While it is asked, it may have pages dropped.
  explicit PrefixTree(PageSource* source = nullptr) : source_(source) {}

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

  PageSource* source_;
  Children roots_;
  std::uint64_t clock_ = 0;
  std::int64_t pages_ = 0;
};

}  // namespace bie::llm
