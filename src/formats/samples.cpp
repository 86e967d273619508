#include "bie/formats/samples.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <utility>

#include "bie/formats/array.h"
#include "bie/formats/csv.h"
#include "bie/formats/error.h"
#include "bie/formats/idx.h"
#include "bie/formats/mapped_file.h"
#include "bie/formats/npy.h"
#include "bie/formats/picture.h"
#include "formats/half.h"

namespace bie::formats {
namespace {

constexpr const char* kind = "file";
constexpr std::string_view npy = "\x93NUMPY", gzip = "\x1f\x8b", idx("\0\0\x08", 3);

/// The model's value of white.
float white_of(InputRange range) { return range == InputRange::bytes ? 255.0f : 1.0f; }

/// Scaling of a file's values: multiply by `times`, then divide by `over`.
struct Factor {
  float times, over;
};
Factor factor_of(const SampleForm& form, bool holds_bytes) {
  if (form.white) return {white_of(form.range), static_cast<float>(*form.white)};
  const bool shrinks = holds_bytes && (form.range == InputRange::unit || form.range == InputRange::any);
  return {1, shrinks ? 255.0f : 1.0f};
}

void check_range(const std::string& path, const SampleForm& form, const std::vector<float>& values) {
  const auto is_finite = [](float value) { return std::isfinite(value); };
  if (!std::all_of(values.begin(), values.end(), is_finite)) fail_file(kind, path, "holds NaN or infinity");
  if (form.range == InputRange::any || form.range == InputRange::numbers) return;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const float white = white_of(form.range);
  if (*least < 0 || *most > white)
    fail_file(kind, path, "holds the value ", *least < 0 ? *least : *most, ", the model takes 0 to ", white,
              "; --white says which value of the file is white");
}

MappedFile opened(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail_file(kind, path, "is a folder");
  return {kind, path};
}

bool begins(const MappedFile& file, std::string_view magic) {
  return std::string_view(reinterpret_cast<const char*>(file.data()), static_cast<std::size_t>(file.size()))
      .starts_with(magic);
}

/// A picture, NPY or IDX; a table if not.
bool is_array(const MappedFile& file) {
  return is_picture(file) || begins(file, npy) || begins(file, gzip) || begins(file, idx);
}

/// Readers give dense arrays.
template <class T, class Convert>
std::vector<float> converted(const Array& array, const Convert& convert) {
  const T* const data = array.data<T>();
  std::vector<float> values(static_cast<std::size_t>(array.count()));
  std::transform(data, data + array.count(), values.begin(), convert);
  return values;
}

std::vector<float> floats_of(const Array& array) {
  const auto cast = [](auto value) { return static_cast<float>(value); };
  switch (array.element) {
    case Element::boolean:
    case Element::u8: return converted<std::uint8_t>(array, cast);
    case Element::i8: return converted<std::int8_t>(array, cast);
    case Element::i16: return converted<std::int16_t>(array, cast);
    case Element::i32: return converted<std::int32_t>(array, cast);
    case Element::i64: return converted<std::int64_t>(array, cast);
    case Element::f16: return converted<std::uint16_t>(array, float_of_half);
    case Element::f32: return converted<float>(array, cast);
    case Element::f64: return converted<double>(array, cast);
    default: break;  // of none of the files read here
  }
  return {};
}

/// The last axes are an image, or a flat one.
void check_sizes(const std::string& path, const std::vector<std::int64_t>& sizes,
                 const std::vector<std::int64_t>& image) {
  const auto ends_in = [&](const std::vector<std::int64_t>& tail) {
    return sizes.size() >= tail.size() && sizes.size() <= tail.size() + 1 &&
           std::equal(tail.rbegin(), tail.rend(), sizes.rbegin());
  };
  const bool fits =
      ends_in(image) || (image[0] == 1 && ends_in({image[1], image[2]})) || ends_in({image[0] * image[1] * image[2]});
  if (!fits)
    fail_file(kind, path, "holds values of sizes ", listed(sizes), ", the model takes images of ", listed(image));
}

std::int64_t product(const std::vector<std::int64_t>& sizes) {
  std::int64_t all = 1;
  for (const std::int64_t size : sizes) all *= size;
  return all;
}

Samples table_samples(const std::string& path, const SampleForm& form) {
  constexpr std::int64_t most_columns = 1 << 16;
  const std::int64_t features = product(form.image);
  if (!form.table && features > most_columns)
    fail_file("CSV file", path, "the model takes ", features, " numbers, a table has at most ", most_columns);
  const TableForm table = form.table ? *form.table : plain_form(features);
  TableRows rows = read_table(load_csv(path, form.csv), table, Labels::optional, form.asked);
  return {.count = rows.count,
          .values = std::move(rows.values),
          .is_table = true,
          .id_name = table.id,
          .ids = std::move(rows.ids),
          .labels = std::move(rows.labels),
          .notes = std::move(rows.notes)};
}

/// The values of an array, and whether they are bytes.
std::vector<float> array_samples(const std::string& path, const MappedFile& file, const SampleForm& form, bool* bytes) {
  const std::vector<std::int64_t>& image = form.image;
  const auto from_array = [&](const Array& array) {
    check_sizes(path, array.sizes, image);
    *bytes = array.element == Element::u8;
    return floats_of(array);
  };
  if (is_picture(file)) {
    const PictureFacts facts = picture_facts(path, file);
    const bool has_size = facts.height == image[1] && facts.width == image[2];
    if ((!has_size && !form.fit) || (image[0] != 1 && image[0] != 3))
      fail_file("picture", path, "is ", facts.height, "x", facts.width, ", the model takes images of ", listed(image));
    return from_array(
        load_picture(path, file, image[0], PictureForm{image[1], image[2], form.fit.value_or(Fit::crop)}));
  }
  return from_array(begins(file, npy) ? load_npy(path) : load_idx(path));
}

}  // namespace

Samples load_samples(const std::string& path, const SampleForm& form) {
  Samples samples;
  if (path == "-") {
    samples = table_samples(path, form);
  } else if (const MappedFile file = opened(path); is_array(file)) {
    samples.values = array_samples(path, file, form, &samples.holds_bytes);
  } else {
    samples = table_samples(path, form);
  }
  samples.count = static_cast<std::int64_t>(samples.values.size()) / product(form.image);
  if (samples.count == 0) fail_file(kind, path, "holds no images");
  const auto [times, over] = factor_of(form, samples.holds_bytes);
  if (times != 1 || over != 1)
    for (float& value : samples.values) value = value * times / over;
  check_range(path, form, samples.values);
  return samples;
}

}  // namespace bie::formats
