// bie export: a saved model as a net that runs without torch.
#include <CLI/Config.hpp>
#include <CLI/Error.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <memory>

#include "bie/models/model_file.h"
#include "bie/models/net_export.h"
#include "cli/commands/commands.h"
#include "cli/support/log.h"
#include "cli/support/output.h"
#include "cli/support/result.h"
#include "cli/support/run_files.h"
#include "cli/support/session.h"

namespace bie::cli {
namespace {

struct Arguments {
  std::string model, out, c_array;
};

/// The bytes as the definition of `bie_net_bytes` in C, aligned as the runtime wants them.
std::string c_source(const std::vector<std::uint8_t>& bytes) {
  std::string text =
      "/* A net of bie: bie_net_from_memory(bie_net_bytes, bie_net_size, &net) */\n"
      "#include <stddef.h>\n"
      "extern const unsigned char bie_net_bytes[];\n"
      "extern const size_t bie_net_size;\n"
      "__attribute__((aligned(64))) const unsigned char bie_net_bytes[] = {";
  for (std::size_t i = 0; i < bytes.size(); ++i) text += (i % 20 == 0 ? "\n" : "") + std::to_string(bytes[i]) + ",";
  return text + "\n};\nconst size_t bie_net_size = sizeof(bie_net_bytes);\n";
}

void export_net(const Arguments& a, const Global& global) {
  if (a.out.empty() && a.c_array.empty()) throw CLI::RequiredError("--out or --c-array");
  const std::string path = model_file(a.model);
  CommandFiles files;
  files.reads(path, "the model's file");
  files.writes("--out", a.out);
  files.writes("--c-array", a.c_array);
  const auto model = models::load_classifier(path);
  const formats::NetFile net = models::exported_net(*model);
  const std::vector<std::uint8_t> bytes = formats::net_bytes(net);
  if (!a.out.empty()) formats::save_net(a.out, net);
  if (!a.c_array.empty()) write_text("C source", a.c_array, c_source(bytes));
  if (global.json)
    print_json("export", {{"model", a.model},
                          {"net", a.out.empty() ? Json() : Json(a.out)},
                          {"c_array", a.c_array.empty() ? Json() : Json(a.c_array)},
                          {"bytes", bytes.size()},
                          {"nodes", net.nodes.size()}});
  else
    std::printf("%zu nodes, %zu bytes\n", net.nodes.size(), bytes.size());
}

}  // namespace

void add_export(CLI::App& app, const Global& global) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("export", "A saved model as a net that runs without torch");
  command->add_option("model", arguments->model, "file written by bie train or bie quantize, or the folder of a run")
      ->required();
  takes_file(command->add_option("-o,--out", arguments->out, "where to write the net (.net.bie)"));
  takes_file(command->add_option("--c-array", arguments->c_array, "where to write its bytes as a C array"));
  command->footer(
      "The net gives the model's logits to the bit, and is run by bie run, by libbie_runtime.so and by the Python "
      "package bie-runtime.\n"
      "Examples:\n"
      "  bie export mnist1.safetensors -o mnist1.net.bie\n"
      "  bie export mnist1.safetensors --c-array mnist1_net.c");
  command->callback([arguments, &global] { export_net(*arguments, global); });
}

}  // namespace bie::cli
