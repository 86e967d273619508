// The subcommands of `bie`. Each adds itself to the parser; its work runs when the parser has chosen it.
// Results go to stdout, logs and progress to stderr.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace bie::cli {

/// Exit codes of the command; docs/cli.md tells users.
enum Exit { ok = 0, failed = 1, usage = 2, bad_data = 3, no_device = 4, interrupted = 130 };

/// The options that stand before or after any command.
struct Global {
  bool json = false;  ///< one JSON object on stdout instead of text
  bool quiet = false;
  int threads = 0;                 ///< 0: the command chooses
  std::vector<std::string> words;  ///< the command line, the program's name left out
};

void add_global_options(CLI::App& app, Global& global, const std::string& threads);

// The global options are filled in by the time a command runs.
void add_train(CLI::App& app, const Global& global);
void add_eval(CLI::App& app, const Global& global);
void add_predict(CLI::App& app, const Global& global);
void add_quantize(CLI::App& app, const Global& global);
void add_report(CLI::App& app, const Global& global);
void add_compare(CLI::App& app, const Global& global);
void add_sweep(CLI::App& app, const Global& global);
void add_inspect(CLI::App& app, const Global& global);
void add_bench(CLI::App& app, const Global& global);
void add_run(CLI::App& app, const Global& global);
void add_export(CLI::App& app, const Global& global);
void add_import(CLI::App& app, const Global& global);
void add_generate(CLI::App& app, const Global& global);
void add_chat(CLI::App& app, const Global& global);
void add_serve(CLI::App& app, const Global& global);
void add_tokenize(CLI::App& app, const Global& global);
void add_perplexity(CLI::App& app, const Global& global);
void add_evaluate(CLI::App& app, const Global& global);
void add_convert(CLI::App& app, const Global& global);
void add_demo(CLI::App& app, const Global& global);
void add_doctor(CLI::App& app, const Global& global);
void add_tune(CLI::App& app, const Global& global);

/// In the order of the help text.
inline constexpr void (*add_commands[])(CLI::App&, const Global&) = {
    add_train,    add_eval,       add_predict,  add_quantize, add_export, add_import,   add_run,  add_report,
    add_compare,  add_sweep,      add_inspect,  add_bench,    add_demo,   add_generate, add_chat, add_serve,
    add_tokenize, add_perplexity, add_evaluate, add_convert,  add_doctor, add_tune,
};

void add_completion(CLI::App& app);
void add_man(CLI::App& app);

}  // namespace bie::cli
