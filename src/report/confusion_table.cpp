#include "report/confusion_table.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "report/class_scores.h"
#include "report/number_text.h"
#include "report/table.h"

namespace bie::report {
namespace {

constexpr std::size_t most_mapped = 40;   // classes
constexpr std::size_t most_listed = 30;   // pairs
constexpr std::size_t most_scored = 100;  // classes
constexpr double deepest = 0.72;          // of the full colour: a count on it can be read

struct View {
  const Confusion& of;
  std::size_t classes;
  std::uint64_t at(std::size_t truth, std::size_t predicted) const { return of.counts[truth * classes + predicted]; }
  std::uint64_t row(std::size_t truth) const {
    const auto begin = of.counts.begin() + static_cast<std::ptrdiff_t>(truth * classes);
    return std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(classes), std::uint64_t{0});
  }
};

std::string share_text(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? no_value : with_unit(static_cast<double>(part) / static_cast<double>(whole), Unit::percent);
}

void draw_map(Markup& page, const View& view) {
  std::uint64_t most_wrong = 1;
  for (std::size_t i = 0; i < view.classes; ++i)
    for (std::size_t j = 0; j < view.classes; ++j)
      if (i != j) most_wrong = std::max(most_wrong, view.at(i, j));

  page.element(
      "p", {{"class", "remark"}},
      "A row is a true class, a column what it was taken for. Blue: right, by share of the row. Orange: wrong, "
      "by count.");
  open_scrolling(page, "which class was taken for which");
  page.open("table", {{"class", "heat"}}).open("thead").open("tr");
  page.element("td");
  for (const std::string& name : view.of.classes) page.element("th", {{"scope", "col"}}, name);
  page.element("th", {{"scope", "col"}, {"class", "number"}}, "right").close().close().open("tbody");
  for (std::size_t i = 0; i < view.classes; ++i) {
    const std::uint64_t row = view.row(i);
    page.open("tr").element("th", {{"scope", "row"}}, view.of.classes[i]);
    for (std::size_t j = 0; j < view.classes; ++j) {
      const auto count = static_cast<double>(view.at(i, j));
      // The square root lets a single mistake be seen beside many.
      const double depth = count == 0 ? 0
                           : i == j   ? count / static_cast<double>(row)
                                      : std::sqrt(count / static_cast<double>(most_wrong));
      const std::string kind = count == 0 ? "none" : i == j ? "right" : "wrong";
      page.element("td",
                   {{"class", kind},
                    {"style", "--depth:" + fixed(deepest * depth, 3)},
                    {"title", view.of.classes[i] + " taken for " + view.of.classes[j] + ": " + grouped(view.at(i, j))}},
                   count == 0 ? "\u00b7" : grouped(view.at(i, j)));
    }
    page.element("td", {{"class", "number"}}, share_text(view.at(i, i), row)).close();
  }
  page.close().close().close();
}

void draw_pairs(Markup& page, const View& view) {
  struct Pair {
    std::size_t truth, predicted;
  };
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < view.classes; ++i)
    for (std::size_t j = 0; j < view.classes; ++j)
      if (i != j && view.at(i, j) > 0) pairs.push_back({i, j});
  std::stable_sort(pairs.begin(), pairs.end(), [&](const Pair& a, const Pair& b) {
    return view.at(a.truth, a.predicted) > view.at(b.truth, b.predicted);
  });
  page.element("p", {{"class", "remark"}},
               pairs.empty()                ? "No sample was taken for another class."
               : pairs.size() > most_listed ? "The pairs that were confused most."
                                            : "Every pair that was confused.");
  pairs.resize(std::min(pairs.size(), most_listed));
  std::vector<std::vector<std::string>> rows;
  for (const auto& [truth, predicted] : pairs)
    rows.push_back({view.of.classes[truth], view.of.classes[predicted], grouped(view.at(truth, predicted)),
                    share_text(view.at(truth, predicted), view.row(truth))});
  draw_table(page, "classes that were confused",
             {{"true class"}, {"taken for"}, {"samples", true}, {"of the class", true}}, rows);
}

void draw_scores(Markup& page, const Confusion& confusion) {
  if (confusion.classes.size() > most_scored) return;
  std::vector<std::vector<std::string>> rows;
  const std::vector<ClassScore> scores = class_scores(confusion);
  for (std::size_t i = 0; i < scores.size(); ++i)
    rows.push_back({confusion.classes[i], grouped(scores[i].samples), with_unit(scores[i].precision, Unit::percent),
                    with_unit(scores[i].recall, Unit::percent), with_unit(scores[i].f1, Unit::percent)});
  page.open("details").element("summary", {}, "Precision, recall and F1 of every class");
  draw_table(page, "scores of the classes",
             {{"class"}, {"samples", true}, {"precision", true}, {"recall", true}, {"F1", true}}, rows);
  page.close();
}

}  // namespace

void draw(Markup& page, const Confusion& confusion) {
  const View view{confusion, confusion.classes.size()};
  const auto& counts = confusion.counts;
  if (view.classes == 0 || counts.size() / view.classes != view.classes || counts.size() % view.classes != 0) return;
  if (std::all_of(counts.begin(), counts.end(), [](std::uint64_t count) { return count == 0; })) return;
  page.open("section", {{"class", "card"}}).element("h2", {}, "Confusion");
  view.classes <= most_mapped ? draw_map(page, view) : draw_pairs(page, view);
  draw_scores(page, confusion);
  page.close();
}

}  // namespace bie::report
