// Words that somebody may have meant.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace bie::formats {

/// How many letters are to be changed, added, left out, or swapped with the next one (optimal string alignment).
inline std::size_t letters_apart(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      next[j] = std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        next[j] = std::min(next[j], before[j - 2] + 1);
    }
    before.swap(row);
    row.swap(next);
  }
  return row[b.size()];
}

/// The known word that is nearest to `word`: of several one that begins with it, else the first. Empty where each is
/// more than a third of its letters away.
inline std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  constexpr std::size_t most_letters = 64;
  std::string best;
  std::size_t least = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    if (word.size() > most_letters || candidate.size() > most_letters) continue;
    const std::size_t apart = letters_apart(word, candidate);
    if (apart < least || (apart == least && candidate.starts_with(word) && !best.empty() && !best.starts_with(word))) {
      least = apart;
      best = candidate;
    }
  }
  return best;
}

}  // namespace bie::formats
