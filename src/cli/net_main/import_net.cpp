// bie import: an ONNX file as a net, in floats or in codes.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "bie/formats/error.h"
#include "bie/formats/samples.h"
#include "bie/onnx/onnx_import.h"
#include "bie/runtime/net_builder.h"
#include "bie/runtime/net_quantise.h"
#include "cli/nets/import.h"
#include "cli/nets/net_files.h"
#include "cli/support/command_files.h"
#include "cli/support/result.h"

namespace bie::cli {
namespace {

namespace fs = std::filesystem;

/// The file, or those of the folder in the order of their names, folders in it and hidden ones left out.
std::vector<std::string> files_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path, error))
    if (entry.is_regular_file(error) && entry.path().filename().string()[0] != '.')
      files.push_back(entry.path().string());
  if (files.empty()) formats::fail_file("folder", path, "holds no files of samples");
  std::sort(files.begin(), files.end());
  return files;
}

/// Evenly spaced samples of all files, `most` of them.
formats::Samples calibration(const ImportArguments& a, const std::vector<std::int64_t>& image,
                             formats::InputRange range) {
  formats::Samples all;
  std::vector<std::string> files = files_of(a.calibration);
  // A file has one sample at least: of more files than samples are wanted, evenly spaced ones are read.
  const auto count = static_cast<std::int64_t>(files.size());
  for (std::int64_t i = 0, last = -1; i < count; ++i) {
    if (count > a.samples && i * a.samples / count == last) continue;
    last = i * a.samples / count;
    const formats::Samples more = formats::load_samples(files[static_cast<std::size_t>(i)], {image, range, a.white});
    all.count += more.count;
    all.values.insert(all.values.end(), more.values.begin(), more.values.end());
  }
  if (all.count <= a.samples) return all;
  formats::Samples some{.count = a.samples};
  const std::int64_t elements = image[0] * image[1] * image[2];
  for (std::int64_t i = 0; i < a.samples; ++i) {
    const auto from = all.values.begin() + i * all.count / a.samples * elements;
    some.values.insert(some.values.end(), from, from + elements);
  }
  return some;
}

}  // namespace

void import_net(const ImportArguments& a, const Global& global) {
  CommandFiles files;
  files.reads(a.model, "the ONNX file");
  if (a.bits) files.reads(files_of(a.calibration), "a file of samples");
  std::vector<std::string> tensors;
  formats::NetFile net = onnx::import_onnx(a.model, {formats::input_range_of(a.range), a.mean, a.std}, &tensors);
  files.reads(tensors, "a file of the ONNX file's tensors");
  files.writes("--out", a.out);
  const formats::InputRange range = *formats::input_range_of(net.metadata["input"]);
  if (a.bits) {
    const std::vector<std::int64_t> image = image_of(net.metadata["image"], net.values[net.inputs[0]].sizes);
    const formats::Samples samples = calibration(a, image, range);
    try {
      net = runtime::quantised(net, samples.values.data(), samples.count,
                               {*a.bits, a.first.value_or(32), a.last.value_or(32)});
    } catch (const formats::Error& error) {
      formats::fail_file("onnx file", a.model, error.what());
    }
    net.metadata["bits"] = std::to_string(*a.bits);
  }
  net = runtime::folded(net);
  const std::vector<std::uint8_t> bytes = formats::net_bytes(net);
  formats::save_net(a.out, net);
  if (global.json)
    print_json("import", {{"model", a.model},
                          {"net", a.out},
                          {"bits", a.bits ? Json(*a.bits) : Json()},
                          {"bytes", bytes.size()},
                          {"input_range", formats::name(range)},
                          {"nodes", net.nodes.size()}});
  else
    std::printf("%zu nodes, %zu bytes\n", net.nodes.size(), bytes.size());
}

}  // namespace bie::cli
