// bie sweep: one training for every point of a small grid.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/Config.hpp>
#include <CLI/Error.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include "bie/train/run_folder.h"
#include "cli/commands/commands.h"
#include "cli/commands/train_arguments.h"
#include "cli/support/compared_runs.h"
#include "cli/support/interrupt.h"
#include "cli/support/log.h"
#include "cli/support/output.h"
#include "cli/support/resumed_words.h"
#include "cli/support/run_files.h"
#include "cli/support/session.h"
#include "cli/support/text.h"
#include "data/value_errors.h"

namespace bie::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_runs = 256;

/// An option and the values that it is to take.
struct Axis {
  std::string option;  ///< "bits", as --bits without its dashes
  std::vector<std::string> values;
};

/// A run: its folder's name and the words that it adds to the command.
struct GridPoint {
  std::string name;
  std::vector<std::string> words;
};

Axis axis_of(const std::string& text) {
  const std::size_t equals = text.find('=');
  Axis axis{text.substr(0, equals), {}};
  while (axis.option.starts_with("-")) axis.option.erase(0, 1);
  for (std::size_t begin = equals == std::string::npos ? text.size() : equals + 1; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    axis.values.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  const auto empty = [](const std::string& value) { return value.empty(); };
  if (axis.option.empty() || axis.values.empty() || std::any_of(axis.values.begin(), axis.values.end(), empty) ||
      text.back() == ',')
    throw CLI::ValidationError("--grid", "expected OPTION=VALUE,VALUE,..., such as bits=1,4,8, got " + text);
  std::vector<std::string> sorted = axis.values;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    throw CLI::ValidationError("--grid " + text, *twice + " stands there twice");
  for (const char* taken : {"run", "resume", "out", "o", "checkpoints", "logits"})
    if (axis.option == taken)
      throw CLI::ValidationError("--grid " + text, "every run has a folder of its own, which has all its files");
  return axis;
}

/// "bits-4", "net-nets%2Fwide.json": a value may hold a slash, and no two values have one name.
std::string folder_name(const std::string& option, const std::string& value) {
  std::string name = option + "-";
  for (const char c : value) name += c == '/' ? "%2F" : c == '%' ? "%25" : std::string(1, c);
  return name;
}

/// Every combination, the last axis fastest.
std::vector<GridPoint> grid_of(const std::vector<std::string>& texts) {
  std::vector<GridPoint> grid{{}};
  std::vector<std::string> seen;
  for (const std::string& text : texts) {
    const Axis axis = axis_of(text);
    if (std::find(seen.begin(), seen.end(), axis.option) != seen.end())
      throw CLI::ValidationError("--grid " + text, "--" + axis.option + " is in the grid already");
    seen.push_back(axis.option);
    std::vector<GridPoint> longer;
    for (const GridPoint& point : grid)
      for (const std::string& value : axis.values) {
        GridPoint next = point;
        next.name += (next.name.empty() ? "" : ",") + folder_name(axis.option, value);
        next.words.push_back("--" + axis.option);
        next.words.push_back(value);
        longer.push_back(std::move(next));
        if (longer.size() > most_runs)
          throw CLI::ValidationError("--grid", "the grid has more than " + std::to_string(most_runs) + " runs");
      }
    grid = std::move(longer);
  }
  return grid;
}

/// Runs this program with the words; its exit code. Its stdout goes to stderr, beside its log.
int run_program(const std::vector<std::string>& words) {
  std::error_code error;
  const std::string program = fs::read_symlink("/proc/self/exe", error).string();
  std::vector<std::string> all{program};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  arguments.reserve(all.size() + 1);
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error(std::string("a run cannot be started: ") + std::strerror(errno));
  if (child == 0) {
    ::setpgid(0, 0);  // Ctrl-C comes to this program, which passes it on once
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    ::execv(program.c_str(), arguments.data());
    ::_exit(127);
  }
  int status = 0;
  bool told = false;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (was_interrupted() && !std::exchange(told, true)) ::kill(child, SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : failed;
}

struct Arguments {
  std::string run, page;
  std::vector<std::string> grid, command;
};

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// A point's run: its folder, and the command that trains it.
struct PointRun {
  std::string which;  ///< "run 2 of 6, bits-4"
  std::unique_ptr<train::RunFolder> folder;
  std::vector<std::string> words;
  bool is_finished;
};

/// Without what does not change the trained model.
std::vector<std::string> words_that_train(std::vector<std::string> words) {
  for (const char* option : {"--run", "--threads"}) take_out(words, option);
  for (const char* flag : {"--resume", "--json", "-q", "--quiet"}) std::erase(words, flag);
  return words;
}

/// Refuses a folder whose run had other options: its results would pass for those of this grid.
void check_same_run(const PointRun& run) {
  const Json config = config_of(run.folder->config());
  std::vector<std::string> words;
  for (const Json& word : config.value("words", Json::array()))
    if (word.is_string()) words.push_back(word.get<std::string>());
  const std::vector<std::string> own = words_that_train(words), wanted = words_that_train(run.words);
  TORCH_CHECK_VALUE(own == wanted, "run folder ", run.folder->path(), " is of \"", shell_line(own),
                    "\", the grid has \"", shell_line(wanted), "\"; another --run folder is for other options");
}

/// Every option of every run, before the first one trains.
std::vector<PointRun> runs_of(const Arguments& a, const std::vector<GridPoint>& grid, const Global& global) {
  std::vector<PointRun> runs;
  for (std::size_t i = 0; i < grid.size(); ++i) {
    PointRun run{format("run %zu of %zu, %s", i + 1, grid.size(), grid[i].name.c_str()),
                 std::make_unique<train::RunFolder>((fs::path(a.run) / grid[i].name).string()),
                 {"train"},
                 false};
    run.words.insert(run.words.end(), a.command.begin(), a.command.end());
    run.words.insert(run.words.end(), grid[i].words.begin(), grid[i].words.end());
    run.words.insert(run.words.end(), {"--run", run.folder->path()});
    const bool is_begun = exists(run.folder->config());
    run.is_finished = is_begun && exists(run.folder->results());
    if (is_begun) check_same_run(run);
    if (is_begun) run.words.emplace_back("--resume");
    check_train_words(run.words, run.which);
    if (global.quiet) run.words.emplace_back("--quiet");
    if (global.threads > 0) run.words.insert(run.words.end(), {"--threads", std::to_string(global.threads)});
    runs.push_back(std::move(run));
  }
  return runs;
}

/// Trains what is not finished yet; the folders of all runs.
std::vector<std::string> train_all(const std::vector<PointRun>& runs) {
  std::vector<std::string> folders;
  const InterruptWatch watch;
  for (const PointRun& run : runs) {
    folders.push_back(run.folder->path());
    if (run.is_finished) {
      log::info(run.which + ": finished already");
      continue;
    }
    log::info(run.which);
    const int code = run_program(run.words);
    if (code == interrupted || was_interrupted())
      throw Interrupted("interrupted in " + run.which + "; the same command goes on");
    if (code != ok)
      throw std::runtime_error(run.which + format(" ended with exit code %d: ", code) + shell_line(run.words));
  }
  return folders;
}

void sweep(Arguments& a, const Global& global) {
  const std::vector<PointRun> points = runs_of(a, grid_of(a.grid), global);
  std::error_code error;
  fs::create_directories(a.run, error);
  TORCH_CHECK_VALUE(!error, "sweep folder ", a.run, ": cannot be made: ", error.message());
  const std::string page = (fs::path(a.run) / "sweep.html").string();
  CommandFiles().writes("--run", page);
  report::RunsReport runs = compared(train_all(points));
  std::vector<std::string> words{"bie"};
  words.insert(words.end(), global.words.begin(), global.words.end());
  runs.command = shell_line(words);
  data::with_value_errors([&] { write_text("report", page, report::html(runs)); });
  log::info("the page is " + page);
  if (global.json)
    print_json("sweep", {{"run", a.run}, {"runs", runs_json(runs)}, {"report", page}});
  else
    print_runs(runs);
}

}  // namespace

void add_sweep(CLI::App& app, const Global& global) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("sweep", "Train one net for every point of a small grid");
  takes_folder(command->add_option("--run", a->run, "a folder for all runs, a folder each, and the page sweep.html"))
      ->required();
  command
      ->add_option("--grid", a->grid,
                   "OPTION=VALUE,VALUE,... of bie train; may be repeated, every combination is trained")
      ->type_name("OPTION=VALUES")
      ->type_size(1)
      ->allow_extra_args(false)
      ->required();
  command->add_option("command", a->command, "the options of bie train that all runs have, behind --");
  command->footer(
      "The same command goes on where it was interrupted: runs that are finished are not trained again.\n"
      "Examples:\n"
      "  bie sweep --run sweeps/digits --grid bits=1,4,8 --grid seed=0,1,2 -- --epochs 10\n"
      "  bie sweep --run sweeps/iris --grid hidden=32,64 --grid lr=0.001,0.003 -- --data csv:iris.csv --bits 8");
  command->callback([a, &global] { sweep(*a, global); });
}

}  // namespace bie::cli
