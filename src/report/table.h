// Rows of text under headings, in a box that scrolls by itself where the screen is narrow.
#pragma once

#include <string>
#include <vector>

#include "report/facts.h"
#include "report/markup.h"

namespace bie::report {

struct Column {
  std::string name;
  bool number = false;  ///< set flush right, in figures of one width
};

/// Opens a box that scrolls sideways where it is wider than the screen, by keys too.
void open_scrolling(Markup& page, const std::string& what);

/// A column that has nothing but dashes and empty cells is left out; nothing at all without rows.
/// @param what  is in it, for those who do not see it: "epochs in numbers"
void draw_table(Markup& page, const std::string& what, const std::vector<Column>& columns,
                const std::vector<std::vector<std::string>>& rows);

/// Names and values under a heading; a fact without a value is left out, and so is the heading of none.
void draw_facts(Markup& page, const std::string& heading, const std::vector<Fact>& facts);

}  // namespace bie::report
