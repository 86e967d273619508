// Exported nets as the commands meet them: what they are told of a net, and what they do with one. Knows no torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bie/formats/samples.h"
#include "bie/runtime/net.h"
#include "cli/commands/commands.h"
#include "cli/support/predictions.h"

namespace bie::cli {

/// Whether the file begins as an exported net does. False for what cannot be read.
bool is_net(const std::string& path);

/// Channels, height and width of a net's input: those of its entry "image" where they make the sizes, which have one
/// number where the net flattens first.
std::vector<std::int64_t> image_of(const std::string& text, const std::vector<std::int64_t>& sizes);

struct NetInfo {
  std::string path;
  runtime::SharedNet net;
  std::vector<std::int64_t> image;               ///< channels, height, width
  std::vector<std::string> classes;              ///< empty where they are numbers
  formats::InputRange range;                     ///< of the values it takes
  std::optional<formats::Fit> fit = {};          ///< how pictures of other sizes are brought to its own
  std::optional<formats::TableForm> table = {};  ///< of the table that it was trained with

  bool is_regression() const { return table && table->regression; }
  std::string class_name(std::int64_t index) const;
  /// A regression's output in the table's unit. Nets of older builds already give it in that unit.
  double answer(float output) const;
};

/// Files that a net is asked about.
struct AskedFiles {
  std::vector<std::string> files;
  std::optional<double> white;
  formats::AskedTable table = {};
  formats::CsvForm csv = {};
};

/// @throws formats::Error, here and below.
NetInfo load_net(const std::string& path);

/// Every image of a file, as the net takes them.
formats::Samples load_samples(const NetInfo& net, const std::string& path, const AskedFiles& asked);

/// [count, outputs]. `threads` as Global has them, 0: one.
std::vector<float> run_net(const NetInfo& net, const formats::Samples& samples, int threads);

/// In place of the commands of the same names, for an exported net.
void predict_with_net(const std::string& model, const AskedFiles& asked, const AnswerOptions& options,
                      const Global& global);
void inspect_net(const std::string& path, const Global& global);
void bench_nets(const std::vector<std::string>& nets, const std::vector<std::int64_t>& batches, int repeats,
                const Global& global);

/// Says once what becomes of the bytes of pictures.
void tell_range(const NetInfo& net, const formats::Samples& samples, bool* is_told);

/// A number above 0, for --white: "" or what is wrong.
std::string bad_white(const std::string& text);

}  // namespace bie::cli
