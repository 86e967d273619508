// Entry of the `bie` command: parses, runs one subcommand, turns every error into one sentence and an exit code.
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <exception>
#include <string>

#include "cli/commands.h"
#include "cli/log.h"

namespace {

/// torch's warnings as log lines of ours.
class Warnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    std::string sentence = warning.msg();
    std::replace(sentence.begin(), sentence.end(), '\n', ' ');
    bie::cli::log::warn(sentence);
  }
};

int run(int argc, char** argv) {
  CLI::App app{"bie: train and run neural networks with 1-, 4- and 8-bit weights and activations", "bie"};
  app.set_version_flag("--version", std::string("bie ") + BIE_VERSION + " (torch " + BIE_TORCH_VERSION + ")");
  app.require_subcommand(1);
  int threads = 0;
  app.add_option("--threads", threads, "CPU threads (default: all cores)")->check(CLI::Range(1, 1024));
  bool quiet = false;
  app.add_flag("-q,--quiet", quiet, "errors only, no other log lines");
  app.fallthrough();
  app.parse_complete_callback([&] {
    if (threads > 0) at::set_num_threads(threads);
    bie::cli::log::start(quiet);
  });
  bie::cli::add_train(app);
  bie::cli::add_eval(app);
  bie::cli::add_demo(app);
  bie::cli::add_doctor(app);
  bie::cli::add_tune(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? bie::cli::ok : bie::cli::usage;
  }
  return bie::cli::ok;
}

}  // namespace

int main(int argc, char** argv) {
  bie::cli::log::start(/*quiet=*/false);
  Warnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  try {
    return run(argc, argv);
  } catch (const c10::ValueError& error) {
    bie::cli::log::error(error.what_without_backtrace());
    return bie::cli::bad_data;
  } catch (const c10::Error& error) {
    bie::cli::log::error(error.what_without_backtrace());
  } catch (const std::exception& error) {
    bie::cli::log::error(error.what());
  }
  return bie::cli::failed;
}
