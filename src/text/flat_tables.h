// Tokens by their texts and by their pairs, in tables without nodes: vocabularies have hundreds of thousands of both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace bie::text {

/// Open addressing with linear probing: the place of a hash among slots of which a third is free.
class Slots {
 public:
  explicit Slots(std::size_t most) : count_(most + most / 2 + 1) {}

  std::size_t count() const { return count_; }
  std::size_t first(std::uint64_t hash) const {
    const std::uint64_t high = hash * 0x9e3779b97f4a7c15u >> 32;  // spread, as hashes of numbers need not be
    return static_cast<std::size_t>(high * count_ >> 32);
  }
  std::size_t next(std::size_t at) const { return at + 1 == count_ ? 0 : at + 1; }

 private:
  std::uint64_t count_;
};

/// Tokens by their texts, which must outlive it and stay where they are.
class TokensByText {
 public:
  static constexpr std::int32_t none = -1;

  explicit TokensByText(const std::vector<std::string>& texts)
      : texts_(texts), slots_(texts.size()), tokens_(slots_.count(), none) {}

  /// False where a token before it has the same text.
  bool add(std::int32_t token) {
    std::int32_t& slot = tokens_[place(texts_[static_cast<std::size_t>(token)])];
    if (slot != none) return false;
    slot = token;
    return true;
  }
  std::int32_t find(std::string_view text) const { return tokens_[place(text)]; }

 private:
  /// The slot of a text, or the free one that would take it.
  std::size_t place(std::string_view text) const {
    std::size_t at = slots_.first(std::hash<std::string_view>()(text));
    while (tokens_[at] != none && texts_[static_cast<std::size_t>(tokens_[at])] != text) at = slots_.next(at);
    return at;
  }

  const std::vector<std::string>& texts_;
  Slots slots_;
  std::vector<std::int32_t> tokens_;
};

/// Finds the token that two neighbours merge into.
class MergesByPair {
 public:
  struct Merge {
    std::int32_t left = -1, right = -1, rank = 0, token = 0;
  };

  explicit MergesByPair(std::size_t most) : slots_(most), merges_(slots_.count()) {}

  /// The first of two merges of one pair stays, or the last one where that counts.
  void add(const Merge& merge, bool last_counts) {
    Merge& slot = merges_[place(merge.left, merge.right)];
    if (slot.left < 0 || last_counts) slot = merge;
  }
  /// Null for none.
  const Merge* find(std::int32_t left, std::int32_t right) const {
    const Merge& found = merges_[place(left, right)];
    return found.left < 0 ? nullptr : &found;
  }

 private:
  std::size_t place(std::int32_t left, std::int32_t right) const {
    std::size_t at = slots_.first(static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right));
    while (merges_[at].left >= 0 && (merges_[at].left != left || merges_[at].right != right)) at = slots_.next(at);
    return at;
  }

  Slots slots_;
  std::vector<Merge> merges_;
};

}  // namespace bie::text
