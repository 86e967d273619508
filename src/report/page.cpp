#include "report/page.h"

#include "report/table.h"

namespace bie::report {

void begin_page(Markup& page, const std::string& title, const std::string& when, const std::string& command) {
  const std::string& shown = title.empty() ? "Report" : title;
  page.open("html", {{"lang", "en"}, {"xmlns", "http://www.w3.org/1999/xhtml"}}).open("head");
  page.single("meta", {{"charset", "utf-8"}});
  page.single("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
  page.single("meta", {{"name", "color-scheme"}, {"content", "light dark"}});
  page.element("title", {}, shown).element("style", {}, style_sheet).close();
  page.open("body").open("main").open("header").element("h1", {}, shown);
  if (!when.empty()) page.element("p", {{"class", "remark"}}, when);
  if (!command.empty())
    page.element("pre", {{"class", "scroll"}, {"tabindex", "0"}, {"role", "region"}, {"aria-label", "command"}},
                 command);
  page.element("p", {{"class", "remark scrolls"}}, "Tables that are wider than the screen scroll sideways.");
  page.close();
}

void draw_notes(Markup& page, const std::vector<std::string>& notes) {
  if (notes.empty()) return;
  page.open("ul", {{"class", "notes"}});
  for (const std::string& note : notes) page.element("li", {}, note);
  page.close();
}

void draw_circumstances(Markup& page, const std::vector<Fact>& configuration, const std::vector<Fact>& machine) {
  if (configuration.empty() && machine.empty()) return;
  page.open("div", {{"class", "facts"}});
  draw_facts(page, "Configuration", configuration);
  draw_facts(page, "Machine", machine);
  page.close();
}

std::string end_page(Markup& page) { return "<!DOCTYPE html>\n" + page.finish() + "\n"; }

}  // namespace bie::report
