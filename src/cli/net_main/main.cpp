// Entry of the `bie` command: what it can do with exported nets, without torch. Anything else is handed to the half
// that has torch, where it is installed.
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>

#include "bie/formats/error.h"
#include "cli/commands/commands.h"
#include "cli/llm/language.h"
#include "cli/net_main/other_half.h"
#include "cli/nets/net_files.h"
#include "cli/support/build_info.h"
#include "cli/support/cpu_facts.h"
#include "cli/support/failed_reads.h"
#include "cli/support/help_text.h"
#include "cli/support/inspect_weights.h"
#include "cli/support/interrupt.h"
#include "cli/support/log.h"
#include "cli/support/predictions.h"
#include "cli/support/result.h"
#include "cli/support/streams.h"
#include "cli/support/suggestion.h"
#include "cli/support/table_words.h"

namespace {

using namespace bie::cli;  // NOLINT(google-build-using-namespace)

void need_net(const std::string& path) {
  if (!is_net(path))
    bie::formats::fail_file("file", path,
                            "is no exported net; other models need the training half of bie: " + without_other_half());
}

void add_predict_of_nets(CLI::App& app, const Global& global) {
  struct Arguments {
    std::string model;
    AskedFiles asked;
    AnswerOptions answers;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("predict", "What a net says of images, or of a table's rows");
  command->add_option("model", a->model, "file written by bie export")->required();
  command
      ->add_option("files", a->asked.files,
                   "PNG, JPEG, WebP, IDX (.gz or not), NPY or CSV files, or folders of such files; - is a table from "
                   "standard input")
      ->required();
  add_answer_options(*command, a->answers);
  add_asked_table(*command, a->asked.csv, a->asked.table, "Tables");
  command->add_option("--white", a->asked.white, "what values are divided by to lie in 0 to 1")->check(bad_white);
  command->callback([a, &global] {
    need_net(a->model);
    a->asked.files = files_in(a->asked.files);
    check_predictions_file(a->answers.out, a->model, a->asked.files);
    predict_with_net(a->model, a->asked, a->answers, global);
  });
}

void add_inspect_of_nets(CLI::App& app, const Global& global) {
  auto file = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("inspect", "What an exported net, a GGUF file or a folder of weights consists of");
  command->add_option("file", *file, "file written by bie export, a GGUF file or a folder of weights")->required();
  command->callback([file, &global] {
    if (const std::optional<Json> weights = weights_json(*file)) {
      if (global.json)
        print_json("inspect", *weights);
      else
        print_weights(*weights);
      return;
    }
    need_net(*file);
    inspect_net(*file, global);
  });
}

void add_bench_of_nets(CLI::App& app, const Global& global) {
  struct Arguments {
    std::vector<std::string> nets;
    std::vector<std::int64_t> batches{1, 64, 256};
    int repeats = 20;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("bench", "How long exported nets take for an image");
  command->add_option("models", a->nets, "files written by bie export")->required();
  command->add_option("--batch", a->batches, "images in a call; several are separated by commas")
      ->check(CLI::Range(1, 1 << 16))
      ->delimiter(',')
      ->default_str("1,64,256");
  command->add_option("--repeats", a->repeats, "calls in each of five rounds")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->callback([a, &global] {
    for (const std::string& net : a->nets) need_net(net);
    bench_nets(a->nets, a->batches, a->repeats, global);
  });
}

void add_doctor_of_nets(CLI::App& app, const Global& global) {
  CLI::App* command = app.add_subcommand("doctor", "What this machine has and which kernels run on it");
  command->callback([&global] {
    if (global.json) {
      print_json("doctor", {{"program", build_info()},
                            {"instruction_sets", instruction_sets_json()},
                            {"kernels", kernels_json(cpu_kernels())}});
      return;
    }
    std::printf("%s\nprocessor: %s\n", version_text().c_str(), build_info()["cpu"].get<std::string>().c_str());
    print_instruction_sets();
    std::printf("kernels, best first (the first available that takes a shape runs):\n");
    print_kernels(cpu_kernels());
  });
}

/// Whether `bie quantize` is meant for language models: nets are quantised in the training half.
bool asks_of_language_models(const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word == "--help" || word == "-h" || word.starts_with("--type") || is_language_model(word);
  });
}

/// Commands of the training half, which only say what to install.
void add_absent(CLI::App& app, bool quantizes_nets) {
  std::vector<const char*> names = {"train", "eval", "export", "report", "compare", "sweep", "demo", "tune"};
  if (quantizes_nets) names.push_back("quantize");
  for (const char* name : names) {
    CLI::App* command = app.add_subcommand(name, "needs the training half of bie, which has torch");
    command->allow_extras()->fallthrough(false)->group("In the training half");
    command->callback([name] {
      throw std::runtime_error("bie " + std::string(name) +
                               " needs the training half of bie, which has torch: " + without_other_half());
    });
  }
}

int report(const Global& global, int code, const std::string& sentence, const CLI::App& app) {
  log::error(sentence);
  const auto commands = app.get_subcommands();
  if (global.json)
    print_json(commands.empty() ? "" : commands.front()->get_name(), {{"error", sentence}, {"exit_code", code}});
  return code;
}

int run(CLI::App& app, Global& global, int argc, char** argv) {
  use_help_text(app);
  app.set_version_flag("--version", version_text, "print the version and what it was built with");
  app.require_subcommand(1);
  add_global_options(app, global, "one");
  app.parse_complete_callback([&] { log::start(global.quiet); });
  add_run(app, global);
  add_import(app, global);
  add_generate(app, global);
  add_chat(app, global);
  add_serve(app, global);
  add_tokenize(app, global);
  add_perplexity(app, global);
  add_evaluate(app, global);
  const bool quantizes_nets = !asks_of_language_models(global.words);
  if (!quantizes_nets) add_quantize_of_languages(app, global);
  add_convert(app, global);
  add_predict_of_nets(app, global);
  add_inspect_of_nets(app, global);
  add_bench_of_nets(app, global);
  add_doctor_of_nets(app, global);
  add_absent(app, quantizes_nets);
  add_help(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool failed_use = app.exit(error) != 0;
    if (const std::string meant = suggestion(app, global.words); failed_use && !meant.empty())
      std::fprintf(stderr, "%s\n", meant.c_str());
    if (failed_use && std::find(global.words.begin(), global.words.end(), "--json") != global.words.end())
      print_json("", {{"error", error.what()}, {"exit_code", static_cast<int>(usage)}});
    return failed_use ? usage : ok;
  }
  check_results_written();
  return ok;
}

}  // namespace

int main(int argc, char** argv) {
  open_missing_streams();
  explain_failed_reads();
  log::start(/*quiet=*/false);
  CLI::App app{"bie: run neural networks with 1-, 4- and 8-bit weights and activations", "bie"};
  Global global;
  global.words.assign(argv + 1, argv + argc);
  try {
    if (!is_for_nets(global.words)) become_other_half(argv);
    return run(app, global, argc, argv);
  } catch (const Interrupted& end) {
    return report(global, interrupted, end.what(), app);
  } catch (const bie::formats::Error& error) {
    return report(global, bad_data, error.what(), app);
  } catch (const std::bad_alloc&) {
    return report(global, failed, "there is not enough memory", app);
  } catch (const std::exception& error) {
    return report(global, failed, error.what(), app);
  }
}
