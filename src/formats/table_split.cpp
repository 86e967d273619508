// Rows of one table, told apart for training and for another purpose.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <random>

#include "bie/formats/csv.h"
#include "bie/formats/error.h"
#include "bie/formats/table.h"

namespace bie::formats {
namespace {

using Indices = std::vector<std::int64_t>;

/// A permutation that is the same with every library: std::shuffle leaves its draws open.
template <class T>
void shuffle(std::vector<T>& values, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random() % i]);
}

/// How many of the first `rows` of a class are for the other purpose.
double others(std::int64_t rows, double share) { return std::floor(static_cast<double>(rows) * share + 1e-9); }

/// The share of each class, at equal distances in the order of `rows`.
Indices of_each_class(const Indices& rows, const Indices& labels, double share) {
  std::map<std::int64_t, std::int64_t> seen;
  Indices chosen;
  for (const std::int64_t row : rows) {
    const std::int64_t count = ++seen[labels.empty() ? 0 : labels[static_cast<std::size_t>(row)]];
    if (others(count, share) > others(count - 1, share)) chosen.push_back(row);
  }
  return chosen;
}

std::map<std::string, Indices> groups_of(const Indices& rows, const std::vector<std::string>& keys) {
  std::map<std::string, Indices> groups;
  for (const std::int64_t row : rows) groups[keys[static_cast<std::size_t>(row)]].push_back(row);
  return groups;
}

std::vector<const Indices*> in_random_order(const std::map<std::string, Indices>& groups, std::uint64_t seed) {
  std::vector<const Indices*> order;
  order.reserve(groups.size());
  for (const auto& [key, group] : groups) order.push_back(&group);
  shuffle(order, seed);
  return order;
}

/// Whole groups in random order, as many as bring the rows nearest to the share.
Indices of_groups(const Indices& rows, const std::vector<std::string>& keys, double share, std::uint64_t seed,
                  const std::string& what, const std::string& column) {
  const std::map<std::string, Indices> groups = groups_of(rows, keys);
  if (groups.size() < 2)
    throw Error(what + ": expected groups of rows, got one " + in_quotes(column) + " for all rows");
  const std::vector<const Indices*> order = in_random_order(groups, seed);
  const double wanted = share * static_cast<double>(rows.size());
  Indices chosen;
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    const auto before = static_cast<double>(chosen.size()), after = before + static_cast<double>(order[i]->size());
    if (!chosen.empty() && after - wanted > wanted - before) continue;
    chosen.insert(chosen.end(), order[i]->begin(), order[i]->end());
  }
  return chosen;
}

/// Whether the order of texts is that of their times: 2024-01-31, 2024/01/31 12:00.
bool begins_with_year(std::string_view text) {
  constexpr std::string_view digits = "0123456789";
  if (text.size() < 7 || (text[4] != '-' && text[4] != '/')) return false;
  const auto is_digit = [&](char c) { return digits.find(c) != std::string_view::npos; };
  return std::all_of(text.begin(), text.begin() + 4, is_digit) && is_digit(text[5]) && is_digit(text[6]);
}

/// The latest rows. Rows of one time stay together.
Indices of_the_end(const TableForm& form, Indices rows, const std::vector<std::string>& keys, double share,
                   const std::string& what) {
  const auto key = [&](std::int64_t row) -> const std::string& { return keys[static_cast<std::size_t>(row)]; };
  bool numbers = true;
  std::vector<double> times(keys.size());
  for (const std::int64_t row : rows)
    numbers = csv_number(key(row), &times[static_cast<std::size_t>(row)], form.numbers) && numbers;
  for (const std::int64_t row : rows)
    if (!numbers && !begins_with_year(key(row)))
      throw Error(joined(what, ": ", in_quotes(form.split.column),
                         ": expected a number or a date such as 2024-01-31 as a time, got ", in_quotes(key(row))));
  const auto before = [&](std::int64_t a, std::int64_t b) {
    return numbers ? times[static_cast<std::size_t>(a)] < times[static_cast<std::size_t>(b)] : key(a) < key(b);
  };
  std::stable_sort(rows.begin(), rows.end(), before);
  std::size_t first = rows.size() - static_cast<std::size_t>(others(static_cast<std::int64_t>(rows.size()), share));
  while (first > 0 && first < rows.size() && !before(rows[first - 1], rows[first])) --first;
  return {rows.begin() + static_cast<std::ptrdiff_t>(first), rows.end()};
}

SplitRows told_apart(const Indices& rows, Indices chosen) {
  std::sort(chosen.begin(), chosen.end());
  SplitRows found;
  std::set_difference(rows.begin(), rows.end(), chosen.begin(), chosen.end(), std::back_inserter(found.train));
  found.other = std::move(chosen);
  return found;
}

}  // namespace

const char* name(SplitKind kind) {
  switch (kind) {
    case SplitKind::shuffle: return "shuffle";
    case SplitKind::group: return "group";
    case SplitKind::time: return "time";
    case SplitKind::order: break;
  }
  return "order";
}

SplitRows split_table(const TableForm& form, double share, const Indices& rows, const Indices& labels,
                      const std::vector<std::string>& keys, const std::string& what, const char* purpose) {
  const SplitRule& split = form.split;
  if (!(share > 0 && share < 1))
    throw Error(joined(what, ": the share of rows for ", purpose, ": expected a number between 0 and 1, got ", share));
  Indices chosen;
  switch (split.kind) {
    case SplitKind::order: chosen = of_each_class(rows, labels, share); break;
    case SplitKind::shuffle: {
      Indices order = rows;
      shuffle(order, split.seed);
      chosen = of_each_class(order, labels, share);
      break;
    }
    case SplitKind::group: chosen = of_groups(rows, keys, share, split.seed, what, split.column); break;
    case SplitKind::time: chosen = of_the_end(form, rows, keys, share, what); break;
  }
  SplitRows found = told_apart(rows, std::move(chosen));
  if (found.train.empty() || found.other.empty())
    throw Error(joined(what, ": a share of ", share, " of the rows of ", labels.empty() ? "the table" : "a class",
                       " is for ", purpose, ", and no ", labels.empty() ? "table" : "class", " has enough rows"));
  return found;
}

SplitRows fold_table(const TableForm& form, int folds, int fold, const Indices& rows, const Indices& labels,
                     const std::vector<std::string>& keys, const std::string& what) {
  const SplitRule& split = form.split;
  const auto count = static_cast<std::size_t>(folds);
  if (split.kind == SplitKind::time)
    throw Error(what + ": expected a split whose rows can be dealt out to folds, got one by time");
  std::vector<Indices> parts(count);
  if (split.kind == SplitKind::group) {
    const std::map<std::string, Indices> groups = groups_of(rows, keys);
    if (groups.size() < count)
      throw Error(joined(what, ": expected a group for each of ", folds, " folds, got ", groups.size(), " groups"));
    for (const Indices* group : in_random_order(groups, split.seed)) {
      Indices& smallest = *std::min_element(parts.begin(), parts.end(),
                                            [](const Indices& a, const Indices& b) { return a.size() < b.size(); });
      smallest.insert(smallest.end(), group->begin(), group->end());
    }
  } else {
    Indices order = rows;
    if (split.kind == SplitKind::shuffle) shuffle(order, split.seed);
    std::map<std::int64_t, std::size_t> next;  // the fold of a class's next row
    for (const std::int64_t row : order)
      parts[next[labels.empty() ? 0 : labels[static_cast<std::size_t>(row)]]++ % count].push_back(row);
    for (const auto& [label, of_class] : next)
      if (of_class < count)
        throw Error(joined(what, ": expected a row of each class for each of ", folds, " folds, got a class of ",
                           of_class, of_class == 1 ? " row" : " rows"));
  }
  return told_apart(rows, std::move(parts[static_cast<std::size_t>(fold)]));
}

}  // namespace bie::formats
