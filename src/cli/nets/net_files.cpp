#include "cli/nets/net_files.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "bie/formats/csv.h"
#include "bie/formats/error.h"
#include "bie/formats/idx.h"
#include "bie/formats/npy.h"
#include "bie/formats/png.h"

namespace bie::cli {
namespace {

using formats::Array, formats::Element;

constexpr const char* kind = "file";

/// Of a regular file; of a pipe, which would be waited for, none.
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

/// What the runtime says of a file or of values is about data.
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

template <class T>
void widen(const Array& array, std::vector<float>* values) {
  const T* const data = array.data<T>();
  values->assign(data, data + array.count());
}

std::vector<float> floats_of(const std::string& path, const Array& array) {
  std::vector<float> values;
  switch (array.element) {
    case Element::boolean:
    case Element::u8: widen<std::uint8_t>(array, &values); break;
    case Element::i8: widen<std::int8_t>(array, &values); break;
    case Element::i16: widen<std::int16_t>(array, &values); break;
    case Element::i32: widen<std::int32_t>(array, &values); break;
    case Element::i64: widen<std::int64_t>(array, &values); break;
    case Element::f32: widen<float>(array, &values); break;
    case Element::f64: widen<double>(array, &values); break;
    default:
      formats::fail_file(kind, path, "holds ", formats::name(array.element), ", which exported nets do not read");
  }
  return values;
}

/// Arrays whose last axes are an image, or a flat one.
void check_sizes(const std::string& path, const std::vector<std::int64_t>& sizes, const NetInfo& net) {
  const auto ends_in = [&](const std::vector<std::int64_t>& tail) {
    return sizes.size() >= tail.size() && sizes.size() <= tail.size() + 1 &&
           std::equal(tail.rbegin(), tail.rend(), sizes.rbegin());
  };
  const std::vector<std::int64_t>& image = net.image;
  const bool fits =
      ends_in(image) || (image[0] == 1 && ends_in({image[1], image[2]})) || ends_in({image[0] * image[1] * image[2]});
  if (!fits)
    formats::fail_file(kind, path, "holds values of sizes ", formats::listed(sizes), ", the model takes images of ",
                       formats::listed(image));
}

/// The values of a file, and whether they are bytes.
std::vector<float> raw_samples(const std::string& path, const NetInfo& net, bool* bytes) {
  const std::string start = first_bytes(path);
  constexpr std::string_view png = "\x89PNG\r\n", npy = "\x93NUMPY", gzip = "\x1f\x8b", idx("\0\0\x08", 3);
  const auto from_array = [&](const Array& array) {
    check_sizes(path, array.sizes, net);
    *bytes = array.element == Element::u8;
    return floats_of(path, array);
  };
  if (start.starts_with(png)) {
    const formats::PngFacts facts = formats::png_facts(path);
    if (facts.height != net.image[1] || facts.width != net.image[2] || (net.image[0] != 1 && net.image[0] != 3))
      formats::fail_file("PNG file", path, "is ", facts.height, "x", facts.width, ", the model takes images of ",
                         formats::listed(net.image));
    return from_array(formats::load_png(path, net.image[0]));
  }
  if (start.starts_with(npy)) return from_array(formats::load_npy(path));
  if (start.starts_with(gzip) || start.starts_with(idx)) return from_array(formats::load_idx(path));
  return formats::load_csv(path, formats::CsvLabels::leftover, net.net.input().elements).numbers;
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

NetInfo load_net(const std::string& path) {
  return with_file_errors(path, [&] {
    NetInfo info{path, runtime::SharedNet(path), {}, {}, true};
    const bie_tensor input = info.net.input();
    for (const std::string& size : parts_of(info.net.metadata("image"), ',')) {
      std::int64_t number = 0;
      std::from_chars(size.data(), size.data() + size.size(), number);
      info.image.push_back(number);
    }
    const bool fits = info.image.size() == 3 && info.image[0] > 0 && info.image[1] > 0 && info.image[2] > 0 &&
                      info.image[0] <= input.elements && info.image[1] <= input.elements &&
                      info.image[0] * info.image[1] <= input.elements &&
                      info.image[2] == input.elements / (info.image[0] * info.image[1]);
    if (!fits) info.image.assign(input.sizes, input.sizes + 3);
    if (!fits && input.rank == 1) info.image = {1, 1, input.elements};
    info.classes = parts_of(info.net.metadata("classes"), '\n');
    info.unit_range = info.net.metadata("input") != "raw";
    return info;
  });
}

Samples load_samples(const std::string& path, const NetInfo& net, std::optional<double> white) {
  bool bytes = false;
  Samples samples;
  samples.values = raw_samples(path, net, &bytes);
  const std::int64_t elements = net.net.input().elements;
  samples.count = static_cast<std::int64_t>(samples.values.size()) / elements;
  if (samples.count == 0) formats::fail_file(kind, path, "holds no images");
  const auto by = static_cast<float>(white.value_or(255));
  if (white || (bytes && net.unit_range))
    for (float& value : samples.values) value /= by;
  for (const float value : samples.values) {
    if (!std::isfinite(value)) formats::fail_file(kind, path, "holds NaN or infinity");
    if (net.unit_range && (value < 0 || value > 1))
      formats::fail_file(kind, path, "holds the value ", value,
                         ", the model takes 0 to 1; --white says what values are to be divided by");
  }
  return samples;
}

std::vector<float> run_net(const NetInfo& net, const Samples& samples, int threads) {
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

std::string bad_white(const std::string& text) {
  double white = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, white);
  return error == std::errc() && rest == end && white > 0 && std::isfinite(white) ? "" : text + " is no number above 0";
}

}  // namespace bie::cli
