#include "llm/prefix_tree.h"

#include <utility>

namespace bie::llm {
namespace {

constexpr std::int64_t positions = kernels::attention_block;  // of a page

std::vector<std::int32_t> tokens_of_page(const std::vector<std::int32_t>& tokens, std::int64_t page) {
  const auto first = tokens.begin() + page * positions;
  return {first, first + positions};
}

}  // namespace

void PrefixTree::lend(const std::vector<std::int32_t>& tokens, Sequence& sequence) {
  const std::int64_t most = (static_cast<std::int64_t>(tokens.size()) - 1) / positions;
  if (most * positions <= sequence.length()) return;
  ++clock_;
  std::vector<Page> pages;
  Children* children = &roots_;
  while (static_cast<std::int64_t>(pages.size()) < most) {
    const auto found = children->find(tokens_of_page(tokens, static_cast<std::int64_t>(pages.size())));
    if (found == children->end()) break;
    found->second->used = clock_;
    pages.push_back(found->second->page);
    children = &found->second->children;
  }
  const std::int64_t length = static_cast<std::int64_t>(pages.size()) * positions;
  if (length > sequence.length()) sequence.begin_with({tokens.begin(), tokens.begin() + length}, std::move(pages));
}

void PrefixTree::keep(const Sequence& sequence) {
  if (sequence.given_back() > 0) return;
  ++clock_;
  Children* children = &roots_;
  for (std::int64_t page = 0; page < sequence.length() / positions; ++page) {
    std::unique_ptr<Node>& node = (*children)[tokens_of_page(sequence.tokens(), page)];
    if (node == nullptr) {
      node = std::make_unique<Node>();
      node->page = sequence.shared_page(page);
      ++pages_;
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
