// bie compare: finished runs side by side.
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands/commands.h"
#include "cli/support/compared_runs.h"
#include "cli/support/log.h"
#include "cli/support/output.h"
#include "cli/support/session.h"
#include "cli/support/text.h"
#include "data/value_errors.h"

namespace bie::cli {
namespace {

void compare(const std::vector<std::string>& folders, const std::string& page, const Global& global) {
  if (!page.empty()) check_output("--report", page);
  report::RunsReport runs = compared(folders);
  std::vector<std::string> words{"bie"};
  words.insert(words.end(), global.words.begin(), global.words.end());
  runs.command = shell_line(words);
  if (!page.empty()) {
    data::with_value_errors([&] { write_text("report", page, report::html(runs)); });
    log::info("the page is " + page);
  }
  if (!global.json) {
    print_runs(runs);
    for (const std::string& note : runs.notes) log::warn(note);
    return;
  }
  Json differences = Json::object();
  for (const report::Difference& difference : runs.differences) differences[difference.option] = difference.values;
  print_json("compare", {{"runs", runs_json(runs)},
                         {"differences", differences},
                         {"notes", runs.notes},
                         {"report", page.empty() ? Json() : Json(page)}});
}

}  // namespace

void add_compare(CLI::App& app, const Global& global) {
  struct Arguments {
    std::vector<std::string> folders;
    std::string page;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("compare", "Show finished runs side by side");
  takes_folder(command->add_option("runs", a->folders, "folders of bie train --run"))->required();
  takes_file(command->add_option("--report", a->page, "a page (HTML) with the curves of the runs"));
  command->footer(
      "In brackets Wilson's interval of 95 % for the accuracy.\n"
      "Examples:\n"
      "  bie compare runs/lenet8 runs/lenet4 runs/lenet1\n"
      "  bie compare runs/* --report runs.html");
  command->callback([a, &global] { compare(a->folders, a->page, global); });
}

}  // namespace bie::cli
