// bie compare: finished runs side by side.
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "bie/train/run_folder.h"
#include "cli/commands/commands.h"
#include "cli/support/compared_runs.h"
#include "cli/support/log.h"
#include "cli/support/output.h"
#include "cli/support/session.h"
#include "cli/support/text.h"
#include "data/value_errors.h"

namespace bie::cli {
namespace {

/// Without files: RUNS/* names the page of a sweep too.
std::vector<std::string> folders_of(const std::vector<std::string>& paths) {
  std::vector<std::string> folders;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored))
      log::info(path + " is no folder and is left out");
    else
      folders.push_back(path);
  }
  TORCH_CHECK_VALUE(!folders.empty(), paths.front(), ": expected the folder of a run, got a file");
  return folders;
}

void compare(const std::vector<std::string>& paths, const std::string& page, const Global& global) {
  const std::vector<std::string> folders = folders_of(paths);
  CommandFiles files;
  for (const std::string& folder : folders) {
    const train::RunFolder run(folder);
    files.reads(run.files(), "a file of the run " + folder);
  }
  files.writes("--report", page);
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
