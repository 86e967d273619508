// Names of control and user-defined tokens, found in a text before anything else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/trie.h"

namespace bie::text {

struct Name {
  std::int32_t token = 0;
  bool is_control = false;                         ///< it is found in special parts alone
  bool is_word = false;                            ///< no letter may stand beside it
  bool strips_left = false, strips_right = false;  ///< it takes the spaces beside it
};

/// Where the special parts of a text lie.
class SpecialParts {
 public:
  void add(std::size_t bytes, bool special);
  /// Bytes from `at` to the end of its part; 0 where that is not special.
  std::size_t left(std::size_t at) const;

 private:
  std::vector<std::pair<std::size_t, bool>> ends_;
};

class Names {
 public:
  static constexpr std::size_t longest = 1024;

  /// @throws formats::Error: no name, or one of more than `longest` bytes.
  void add(const std::string& text, const Name& name);
  bool empty() const { return names_.empty(); }

  /// Bytes of the longest name that begins the text, 0 for none.
  std::size_t match_at(std::string_view text) const {
    std::size_t length = 0;
    match(
        text, 0, [&] { return text.size(); }, &length);
    return length;
  }

  struct Match {
    std::size_t begin, end;  ///< of the name and the spaces that it takes
    const Name* name;
  };
  /// The names in a text, from left to right, of those that begin at one place the longest. A control token's name lies
  /// wholly in a special part; `special` says how many bytes are left of it at a place.
  template <class Special>
  std::vector<Match> find(std::string_view text, const Special& special) const {
    std::vector<Match> found;
    if (names_.empty()) return found;
    std::size_t from = 0;
    for (std::size_t at = 0; at < text.size();) {
      std::size_t length = 0;
      const Name* const name = match(
          text, at, [&] { return special(at); }, &length);
      if (name == nullptr) {
        ++at;
        continue;
      }
      if (const Match taken = spread(text, at, at + length, from, *name); taken.name != nullptr) {
        found.push_back(taken);
        from = taken.end;
      }
      at += length;
    }
    return found;
  }

 private:
  template <class Special>
  const Name* match(std::string_view text, std::size_t at, const Special& special, std::size_t* length) const {
    std::uint32_t node = 0;
    const Name* name = nullptr;
    std::size_t left = 0;
    bool has_left = false;
    for (std::size_t end = at; end < text.size();) {
      node = trie_.next(node, text[end++]);
      if (node == 0) break;
      if (node >= name_of_.size() || name_of_[node] < 0) continue;
      const Name& here = names_[static_cast<std::size_t>(name_of_[node])];
      if (here.is_control) {
        if (!has_left) left = special();
        has_left = true;
        if (left < end - at) continue;
      }
      name = &here;
      *length = end - at;
    }
    return name;
  }
  /// With the spaces that it takes, behind `from`; without a name where a word goes on beside it.
  static Match spread(std::string_view text, std::size_t begin, std::size_t end, std::size_t from, const Name& name);

  Trie trie_;
  std::vector<std::int32_t> name_of_;  ///< of nodes: an index, or -1
  std::vector<Name> names_;
};

}  // namespace bie::text
