// bie import: what the command line of it is, in both halves.
#include "cli/nets/import.h"

#include <CLI/Config.hpp>
#include <CLI/Error.hpp>
#include <CLI/Formatter.hpp>
#include <memory>

#include "cli/nets/net_files.h"
#include "cli/support/result.h"

namespace bie::cli {
namespace {

std::string no_width(const std::string& text) {
  return text == "32" || text == "8" || text == "4" ? "" : "expected 32, 8 or 4 bits, got " + text;
}

void check_together(const ImportArguments& a) {
  if (!a.bits && !a.calibration.empty()) throw CLI::ValidationError("--calib", "is for --bits, which is not given");
  if (!a.bits && (a.first || a.last))
    throw CLI::ValidationError("--first and --last", "are for --bits, which is not given");
  if (a.bits && a.calibration.empty())
    throw CLI::ValidationError("--bits", "needs --calib, samples that the step sizes are taken from");
  if (a.calibration.empty() && a.white) throw CLI::ValidationError("--white", "is for --calib, which is not given");
}

}  // namespace

void add_import(CLI::App& app, const Global& global) {
  auto arguments = std::make_shared<ImportArguments>();
  ImportArguments& a = *arguments;
  CLI::App* command = app.add_subcommand("import", "An ONNX file as a net that runs without other frameworks");
  command->add_option("model", a.model, "an ONNX file")->required();
  command->add_option("-o,--out", a.out, "where to write the net (.net.bie)")
      ->required()
      ->type_name("FILE")
      ->check([](const std::string& path) { return path.empty() ? "an empty name" : ""; });
  command->add_option("--bits", a.bits, "8 or 4: quantise all products but the first and the last")
      ->check(CLI::IsMember({8, 4}));
  command->add_option("--first", a.first, "bits of the first product (default: 32)")->check(no_width);
  command->add_option("--last", a.last, "bits of the last product (default: 32)")->check(no_width);
  command->add_option("--calib", a.calibration,
                      "samples: a PNG, JPEG, WebP, IDX, NPY or CSV file, or a folder of such files");
  command->add_option("--calib-samples", a.samples, "how many samples to look at")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--white", a.white, "the samples' value of white (default: 255 for bytes, 1 for other numbers)")
      ->check(bad_white);
  command
      ->add_option(
          "--input-range", a.range,
          "the values that the model takes: unit (0 to 1), bytes (0 to 255), any (bytes of pictures are divided "
          "by 255), numbers (of a table; default: unit with --mean or --std, else any for images)")
      ->check([](const std::string& word) {
        return formats::input_range_of(word) ? "" : "expected unit, bytes, any or numbers, got " + word;
      });
  command->add_option("--mean", a.mean, "taken off the input first: a number per channel, or one, in --input-range")
      ->delimiter(',')
      ->type_name("R,G,B");
  command->add_option("--std", a.std, "and what the difference is divided by")->delimiter(',')->type_name("R,G,B");
  command->footer(
      "An operator that a net does not have is named, and nothing is written.\n"
      "Examples:\n"
      "  bie import resnet18.onnx -o resnet18.net.bie --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225\n"
      "  bie import resnet18.onnx -o resnet18.net.bie --bits 8 --calib samples.npy");
  command->callback([arguments, &global] {
    check_together(*arguments);
    import_net(*arguments, global);
  });
}

}  // namespace bie::cli
