// A set of texts, walked byte by byte.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace bie::text {

/// Nodes are numbered as they are made; 0 is the empty text.
class Trie {
 public:
  Trie() : slots_(1024), root_(256, 0) {}

  /// The node of a text, which is made where there is none.
  std::uint32_t add(std::string_view text) {
    std::uint32_t node = 0;
    for (const char c : text) {
      const std::uint32_t found = next(node, c);
      node = found != 0 ? found : insert(node, c);
    }
    return node;
  }

  /// The node of one byte more; 0 for none.
  std::uint32_t next(std::uint32_t node, char byte) const {
    if (node == 0) return root_[static_cast<unsigned char>(byte)];
    const std::uint64_t key = key_of(node, byte);
    for (std::size_t at = place(key);; at = (at + 1) & (slots_.size() - 1))
      if (slots_[at].key == key || slots_[at].key == 0) return slots_[at].node;
  }

  std::size_t size() const { return count_ + 1; }

  /// How a node was made: the last byte of its text, and the node of what lies before it, whose number is less.
  std::uint32_t parent(std::uint32_t node) const { return parents_[node]; }
  char byte(std::uint32_t node) const { return bytes_[node]; }

 private:
  struct Slot {
    std::uint64_t key = 0;  ///< 0: empty
    std::uint32_t node = 0;
  };

  static std::uint64_t key_of(std::uint32_t node, char byte) {
    return static_cast<std::uint64_t>(node) << 8 | static_cast<unsigned char>(byte);
  }
  std::size_t place(std::uint64_t key) const {
    return static_cast<std::size_t>(key * 0x9e3779b97f4a7c15u >> 32) & (slots_.size() - 1);
  }
  std::uint32_t insert(std::uint32_t node, char byte) {
    parents_.push_back(node);
    bytes_.push_back(byte);
    if (node == 0) return root_[static_cast<unsigned char>(byte)] = ++count_;
    if (2 * (used_ + 1) > slots_.size()) {
      std::vector<Slot> old(2 * slots_.size());
      old.swap(slots_);
      for (const Slot& slot : old)
        if (slot.key != 0) put(slot);
    }
    put({key_of(node, byte), ++count_});
    ++used_;
    return count_;
  }
  void put(const Slot& slot) {
    std::size_t at = place(slot.key);
    while (slots_[at].key != 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }

  std::vector<Slot> slots_;
  std::vector<std::uint32_t> root_;
  std::vector<std::uint32_t> parents_ = {0};
  std::vector<char> bytes_ = {0};
  std::size_t used_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace bie::text
