#include "report/table.h"

#include <algorithm>

#include "report/number_text.h"

namespace bie::report {

void open_scrolling(Markup& page, const std::string& what) {
  page.open("div", {{"class", "scroll"}, {"tabindex", "0"}, {"role", "region"}, {"aria-label", what}});
}

void draw_table(Markup& page, const std::string& what, const std::vector<Column>& columns,
                const std::vector<std::vector<std::string>>& rows) {
  if (rows.empty()) return;
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return !row[i].empty() && row[i] != no_value; }))
      shown.push_back(i);
  const auto css_class = [&](std::size_t i) { return columns[i].number ? "number" : "words"; };
  open_scrolling(page, what);
  page.open("table").open("thead").open("tr");
  for (const std::size_t i : shown) page.element("th", {{"class", css_class(i)}, {"scope", "col"}}, columns[i].name);
  page.close().close().open("tbody");
  for (const auto& row : rows) {
    page.open("tr");
    for (const std::size_t i : shown) page.element("td", {{"class", css_class(i)}}, row[i]);
    page.close();
  }
  page.close().close().close();
}

void draw_facts(Markup& page, const std::string& heading, const std::vector<Fact>& facts) {
  if (std::all_of(facts.begin(), facts.end(), [](const Fact& fact) { return fact.value.empty(); })) return;
  page.open("section", {{"class", "card"}}).element("h2", {}, heading).open("dl");
  for (const Fact& fact : facts)
    if (!fact.value.empty()) page.element("dt", {}, fact.name).element("dd", {}, fact.value);
  page.close().close();
}

}  // namespace bie::report
