#include "bie/data/samples.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/tensor.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <tuple>

#include "bie/formats/csv.h"
#include "bie/formats/error.h"
#include "bie/formats/idx.h"
#include "bie/formats/npy.h"
#include "bie/formats/png.h"
#include "data/tensors.h"
#include "data/value_errors.h"
#include "formats/regular_file.h"

namespace bie::data {
namespace {

constexpr const char* kind = "file";

std::string first_bytes(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) formats::fail_file(kind, path, "is a folder");
  const int file = formats::open_regular(kind, path);
  std::array<char, 8> bytes{};
  const ssize_t count = ::read(file, bytes.data(), bytes.size());
  const int reason = errno;
  ::close(file);
  if (count < 0) formats::fail_file(kind, path, "cannot be read: ", std::strerror(reason));
  return {bytes.data(), static_cast<std::size_t>(count)};
}

/// [n, channels, height, width] of an array whose last axes are an image, or a flat one.
at::Tensor as_images(const std::string& path, const at::Tensor& values, at::IntArrayRef image) {
  const at::IntArrayRef sizes = values.sizes();
  const auto ends_in = [&](at::IntArrayRef tail) {
    return sizes.size() >= tail.size() && sizes.slice(sizes.size() - tail.size()) == tail &&
           sizes.size() <= tail.size() + 1;
  };
  const std::int64_t flat = image[0] * image[1] * image[2];
  const bool fits = ends_in(image) || (image[0] == 1 && ends_in(image.slice(1))) || ends_in({flat});
  if (!fits) formats::fail_file(kind, path, "holds values of sizes ", sizes, ", the model takes images of ", image);
  return values.reshape({-1, image[0], image[1], image[2]});
}

at::Tensor png_sample(const std::string& path, at::IntArrayRef image) {
  const formats::PngFacts facts = formats::png_facts(path);
  if (facts.height != image[1] || facts.width != image[2] || (image[0] != 1 && image[0] != 3))
    formats::fail_file("PNG file", path, "is ", facts.height, "x", facts.width, ", the model takes images of ", image);
  return tensor_of(formats::load_png(path, image[0])).unsqueeze(0);
}

at::Tensor csv_samples(const std::string& path, at::IntArrayRef image) {
  const formats::CsvTable table = formats::load_csv(path, formats::CsvLabels::leftover, image[0] * image[1] * image[2]);
  return at::tensor(table.numbers).view({-1, image[0], image[1], image[2]});
}

at::Tensor raw_samples(const std::string& path, at::IntArrayRef image) {
  const std::string start = first_bytes(path);
  constexpr std::string_view png = "\x89PNG\r\n", npy = "\x93NUMPY", gzip = "\x1f\x8b", idx("\0\0\x08", 3);
  if (start.starts_with(png)) return png_sample(path, image);
  if (start.starts_with(npy)) return as_images(path, tensor_of(formats::load_npy(path)), image);
  if (start.starts_with(gzip) || start.starts_with(idx))
    return as_images(path, tensor_of(formats::load_idx(path)), image);
  return csv_samples(path, image);
}

at::Tensor load(const std::string& path, const SampleForm& form) {
  const at::Tensor raw = raw_samples(path, form.image);
  if (raw.numel() == 0) formats::fail_file(kind, path, "holds no images");
  at::Tensor images = raw.to(at::kFloat);
  const bool bytes = raw.scalar_type() == at::kByte;
  if (form.white || (bytes && form.unit_range)) images = images.div(form.white.value_or(255));
  const auto [low, high] = at::aminmax(images);
  const double least = low.item<double>(), most = high.item<double>();
  if (!std::isfinite(least) || !std::isfinite(most)) formats::fail_file(kind, path, "holds NaN or infinity");
  if (form.unit_range && (least < 0 || most > 1))
    formats::fail_file(kind, path, "holds the value ", least < 0 ? least : most,
                       ", the model takes 0 to 1; --white says what values are to be divided by");
  return images;
}

}  // namespace

at::Tensor load_samples(const std::string& path, const SampleForm& form) {
  return with_value_errors([&] { return load(path, form); });
}

}  // namespace bie::data
