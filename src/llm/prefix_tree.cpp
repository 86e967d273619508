#include "llm/prefix_tree.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace bie::llm {
namespace {

constexpr std::int64_t positions = kernels::attention_block;  // of a page

using Tokens = std::vector<std::int32_t>;

/// Those of a page that begins at `first`: 64, or what there is.
Tokens tokens_of_page(const Tokens& tokens, std::int64_t first) {
  const auto end = std::min<std::int64_t>(first + positions, static_cast<std::int64_t>(tokens.size()));
  return {tokens.begin() + first, tokens.begin() + end};
}

std::int64_t common(const Tokens& a, const Tokens& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace

void PrefixTree::lend(const Tokens& tokens, Sequence& sequence) {
  const Tokens wanted(tokens.begin(), tokens.end() - 1);
  if (static_cast<std::int64_t>(wanted.size()) <= sequence.length()) return;
  ++clock_;
  std::vector<Page> pages;
  std::int64_t length = 0;
  Children* children = &roots_;
  while (children != nullptr && length < static_cast<std::int64_t>(wanted.size())) {
    const Tokens next = tokens_of_page(wanted, length);
    // The pages of the nodes above are held here, so that they stay while the source makes room.
    if (source_ != nullptr && static_cast<std::int64_t>(next.size()) == positions &&
        children->find(next) == children->end())
      if (Page page = source_->find(wanted, length + positions)) {
        std::unique_ptr<Node>& node = (*children)[next];
        node = std::make_unique<Node>();
        node->page = std::move(page);
        node->used = clock_;
        ++pages_;
      }
    // Among keys in order, the one that has most of `next` at its beginning is beside the place of `next`.
    const auto above = children->lower_bound(next);
    std::int64_t most = 0;
    Node* best = nullptr;
    for (auto at : {above, above == children->begin() ? children->end() : std::prev(above)}) {
      const std::int64_t same = at == children->end() ? 0 : common(next, at->first);
      if (same <= most) continue;
      most = same;
      best = at->second.get();
    }
    if (best == nullptr) break;
    best->used = clock_;
    pages.push_back(best->page);
    length += most;
    children = most == positions ? &best->children : nullptr;
  }
  if (length > sequence.length()) sequence.begin_with({tokens.begin(), tokens.begin() + length}, std::move(pages));
}

void PrefixTree::keep(const Sequence& sequence, bool with_rest) {
  if (sequence.given_back() > 0) return;
  ++clock_;
  Children* children = &roots_;
  for (std::int64_t page = 0; page < sequence.pages(); ++page) {
    Tokens tokens = tokens_of_page(sequence.tokens(), page * positions);
    if (static_cast<std::int64_t>(tokens.size()) < positions && !with_rest) return;
    std::unique_ptr<Node>& node = (*children)[std::move(tokens)];
    if (node == nullptr) {
      node = std::make_unique<Node>();
      node->page = sequence.shared_page(page);
      ++pages_;
      const std::int64_t end = (page + 1) * positions;
      if (source_ != nullptr && end <= sequence.length()) source_->take(sequence.tokens(), end, node->page);
    }
    node->used = clock_;
    children = &node->children;
  }
}

void PrefixTree::find_oldest(Children& children, Place* oldest) {
  for (auto at = children.begin(); at != children.end(); ++at) {
    Node& node = *at->second;
    if (!node.children.empty())
      find_oldest(node.children, oldest);
    else if (node.page.use_count() == 1 && (oldest->among == nullptr || node.used < oldest->at->second->used))
      *oldest = {&children, at};
  }
}

bool PrefixTree::drop_one() {
  Place oldest;
  find_oldest(roots_, &oldest);
  if (oldest.among == nullptr) return false;
  oldest.among->erase(oldest.at);
  --pages_;
  return true;
}

}  // namespace bie::llm
