// Frame of every report page: head, style, title, notes.
#pragma once

#include <string>
#include <vector>

#include "report/facts.h"
#include "report/markup.h"

namespace bie::report {

/// CSS without a character that markup would escape: light, dark, narrow and paper.
extern const char style_sheet[];

/// Opens the page and draws its top; what is empty is left out. Sections follow, then end_page.
void begin_page(Markup& page, const std::string& title, const std::string& when, const std::string& command);

/// Sentences about what is shown; nothing without any.
void draw_notes(Markup& page, const std::vector<std::string>& notes);

/// The last sections: how the numbers came about.
void draw_circumstances(Markup& page, const std::vector<Fact>& configuration, const std::vector<Fact>& machine);

/// The text of the page: Markup::finish() after a document type.
std::string end_page(Markup& page);

}  // namespace bie::report
