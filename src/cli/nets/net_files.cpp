#include "cli/nets/net_files.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <sstream>
#include <string_view>

#include "bie/formats/class_names.h"
#include "bie/formats/error.h"
#include "cli/support/log.h"

namespace bie::cli {
namespace {

/// First bytes of a regular file; empty for a pipe, which would block.
std::string first_bytes(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  std::ifstream file(path, std::ios::binary);
  std::string bytes(8, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  return bytes;
}

std::vector<std::string> parts_of(const std::string& text, char between) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, between);) parts.push_back(part);
  return parts;
}

/// "raw" is the word of older files for everything that does not take 0 to 1.
formats::InputRange range_of(const NetInfo& net) {
  const std::string word = net.net.metadata("input");
  if (const auto range = formats::input_range_of(word)) return *range;
  if (word != "raw") return formats::InputRange::unit;
  const bool is_image = net.image[1] * net.image[2] > 1 && net.net.metadata("table").empty();
  return is_image ? formats::InputRange::any : formats::InputRange::numbers;
}

/// Runs body() and rethrows the runtime's errors about a file or its values as formats::Error: they are data errors.
template <class Body>
auto with_file_errors(const std::string& path, const Body& body) {
  try {
    return body();
  } catch (const runtime::NetError& error) {
    if (error.status == BIE_BAD_VALUES) formats::fail_file("net file", path, error.what());
    if (error.status == BIE_BAD_FILE) throw formats::Error(error.what());
    throw;
  }
}

}  // namespace

bool is_net(const std::string& path) {
  return first_bytes(path) ==
         "\x93"
         "BIENET\n";
}

std::string NetInfo::class_name(std::int64_t index) const {
  const auto at = static_cast<std::size_t>(index);
  return at < classes.size() ? classes[at] : std::to_string(index);
}

double NetInfo::answer(float output) const { return table->version < 2 ? output : table->answer(output); }

std::vector<std::int64_t> image_of(const std::string& text, const std::vector<std::int64_t>& sizes) {
  const std::int64_t elements =
      std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<std::int64_t>());
  std::vector<std::int64_t> image;
  for (const std::string& size : parts_of(text, ',')) {
    std::int64_t number = 0;
    std::from_chars(size.data(), size.data() + size.size(), number);
    image.push_back(number);
  }
  const bool fits = image.size() == 3 && image[0] > 0 && image[1] > 0 && image[2] > 0 && image[0] <= elements &&
                    image[1] <= elements && image[0] * image[1] <= elements &&
                    image[2] == elements / (image[0] * image[1]);
  if (fits) return image;
  return sizes.size() == 3 ? sizes : std::vector<std::int64_t>{1, 1, elements};
}

NetInfo load_net(const std::string& path) {
  return with_file_errors(path, [&] {
    NetInfo info{.path = path, .net = runtime::SharedNet(path), .image = {}, .classes = {}, .range = {}};
    const bie_tensor input = info.net.input();
    info.image = image_of(info.net.metadata("image"), {input.sizes, input.sizes + input.rank});
    try {
      info.classes = formats::class_names_of(info.net.metadata("classes"), info.net.metadata("class_names"));
    } catch (const formats::Error& error) {
      formats::fail_file("net file", path, error.what());
    }
    info.range = range_of(info);
    info.fit = formats::fit_of(info.net.metadata("fit"));
    if (const std::string table = info.net.metadata("table"); !table.empty()) {
      try {
        info.table = formats::parse_table(table);
      } catch (const formats::Error& error) {
        formats::fail_file("net file", path, error.what());
      }
      if (info.table->features() != input.elements)
        formats::fail_file("net file", path, "table: ", info.table->features(), " features, the net takes ",
                           input.elements);
    }
    return info;
  });
}

formats::Samples load_samples(const NetInfo& net, const std::string& path, const AskedFiles& asked) {
  return formats::load_samples(path, {net.image, net.range, asked.white, net.table, asked.table, asked.csv, net.fit});
}

std::vector<float> run_net(const NetInfo& net, const formats::Samples& samples, int threads) {
  return with_file_errors(net.path, [&] {
    bie_options options{};
    options.max_batch = std::min<std::int64_t>(samples.count, 64);
    options.threads = threads;
    runtime::Context context(net.net, options);
    std::vector<float> outputs(static_cast<std::size_t>(samples.count * net.net.output().elements));
    context.run(samples.values.data(), samples.count, outputs.data());
    return outputs;
  });
}

void tell_range(const NetInfo& net, const formats::Samples& samples, bool* is_told) {
  if (*is_told || !samples.holds_bytes) return;
  *is_told = true;
  switch (net.range) {
    case formats::InputRange::unit: return log::info(net.path + " takes values of 0 to 1: bytes are divided by 255");
    case formats::InputRange::bytes: return log::info(net.path + " takes values of 0 to 255: bytes stay as they are");
    case formats::InputRange::numbers: return;
    case formats::InputRange::any:
      return log::info(net.path +
                       " does not say what range its values have: bytes are divided by 255; --white 1 takes them as "
                       "they are, and import --input-range says it in the file");
  }
}

std::string bad_white(const std::string& text) {
  double white = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, white);
  return error == std::errc() && rest == end && white > 0 && std::isfinite(white) ? "" : text + " is no number above 0";
}

}  // namespace bie::cli
