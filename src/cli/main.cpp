// Entry of the `bie` command: parses, runs one subcommand, turns every error into one sentence and an exit code.
#include <c10/util/Exception.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "bie/formats/error.h"
#include "bie/train/device.h"
#include "bie/train/passive_threads.h"
#include "cli/commands/commands.h"
#include "cli/support/build_info.h"
#include "cli/support/failed_reads.h"
#include "cli/support/help_text.h"
#include "cli/support/interrupt.h"
#include "cli/support/log.h"
#include "cli/support/result.h"
#include "cli/support/resumed_words.h"
#include "cli/support/streams.h"
#include "cli/support/suggestion.h"
#include "cli/support/threads.h"

BIE_PASSIVE_THREADS;

namespace {

using bie::cli::Global;

/// torch's warnings as log lines of ours.
class Warnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    std::string sentence = warning.msg();
    std::replace(sentence.begin(), sentence.end(), '\n', ' ');
    bie::cli::log::warn(sentence);
  }
};

/// Freed memory stays with the program, up to blocks of 32 MiB, the most that glibc allows: to have fresh pages for
/// each tensor takes longer than the layers of a small net.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

void print_error(const CLI::App& app, int code, const std::string& sentence) {
  const auto commands = app.get_subcommands();
  bie::cli::print_json(commands.empty() ? "" : commands.front()->get_name(),
                       {{"error", sentence}, {"exit_code", code}});
}

/// Reports the parser's error, or prints the help it asks for. The parser may have stopped before --json.
int refuse_use(const CLI::App& app, const Global& global, const CLI::ParseError& error) {
  if (app.exit(error) == 0) {
    bie::cli::check_results_written();
    return bie::cli::ok;
  }
  const std::string meant = bie::cli::suggestion(app, global.words);
  if (!meant.empty()) std::fprintf(stderr, "%s\n", meant.c_str());
  if (std::find(global.words.begin(), global.words.end(), "--json") != global.words.end())
    print_error(app, bie::cli::usage, error.what() + (meant.empty() ? meant : "; " + meant));
  return bie::cli::usage;
}

int run(CLI::App& app, Global& global) {
  bie::cli::use_help_text(app);
  app.set_version_flag("--version", bie::cli::version_text, "print the version and what it was built with");
  app.require_subcommand(1);
  bie::cli::add_global_options(app, global, "what the net can use of the cores");
  app.footer(
      "Results go to stdout, logs and progress to stderr. Exit codes: 0 done, 1 failed, 2 wrong use, 3 bad data or "
      "file, 4 no such device, 130 interrupted.\n"
      "Examples:\n"
      "  bie train --bits 4 -o digits4.safetensors\n"
      "  bie train --help");
  app.parse_complete_callback([&] {
    bie::cli::start_threads(global.threads);
    bie::cli::log::start(global.quiet);
  });
  for (const auto add : bie::cli::add_commands) add(app, global);
  bie::cli::add_help(app);
  bie::cli::add_completion(app);
  bie::cli::add_man(app);
  try {
    global.words = bie::cli::resumed_words(global.words);
    app.parse(std::vector<std::string>(global.words.rbegin(), global.words.rend()));
  } catch (const CLI::ParseError& error) {
    return refuse_use(app, global, error);
  }
  bie::cli::check_results_written();
  return bie::cli::ok;
}

/// A sentence where torch tells of its allocator.
std::string readable(const std::string& error) {
  const std::size_t size = error.find("you tried to allocate ");
  if (size == std::string::npos) return error;
  const std::string bytes = error.substr(size + 22, error.find(' ', size + 22) - size - 22);
  return "there is not enough memory: " + bytes + " bytes more were wanted";
}

/// The sentence on stderr, and with --json an object on stdout too.
int report(const CLI::App& app, const Global& global, int code, const std::string& sentence) {
  if (code == bie::cli::interrupted)
    bie::cli::log::warn(sentence);
  else
    bie::cli::log::error(sentence);
  if (global.json) print_error(app, code, sentence);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  bie::cli::open_missing_streams();
  bie::cli::explain_failed_reads();
  keep_freed_memory();
  bie::cli::log::start(/*quiet=*/false);
  Warnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  CLI::App app{"bie: train and run neural networks with 1-, 4- and 8-bit weights and activations", "bie"};
  Global global;
  global.words.assign(argv + 1, argv + argc);
  try {
    return run(app, global);
  } catch (const bie::cli::Interrupted& end) {
    return report(app, global, bie::cli::interrupted, end.what());
  } catch (const bie::train::MissingDevice& error) {
    return report(app, global, bie::cli::no_device, error.what_without_backtrace());
  } catch (const c10::ValueError& error) {
    return report(app, global, bie::cli::bad_data, error.what_without_backtrace());
  } catch (const bie::formats::Error& error) {
    return report(app, global, bie::cli::bad_data, error.what());
  } catch (const c10::Error& error) {
    return report(app, global, bie::cli::failed, readable(error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    return report(app, global, bie::cli::failed, "there is not enough memory");
  } catch (const std::exception& error) {
    return report(app, global, bie::cli::failed, error.what());
  }
}
