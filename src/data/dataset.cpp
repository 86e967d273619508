#include "bie/data/dataset.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "bie/formats/cifar10.h"
#include "bie/formats/idx.h"
#include "data/csv_dataset.h"
#include "data/digits.h"
#include "data/image_folder.h"
#include "data/split.h"
#include "data/tensors.h"
#include "data/value_errors.h"

namespace bie::data {
namespace {

constexpr std::int64_t digit_classes = 10;

/// uint8 [n, height, width] to float32 [n, 1, height, width] in [0, 1].
at::Tensor scale_images(const at::Tensor& images, int white) { return images.unsqueeze(1).to(at::kFloat).div_(white); }

at::Tensor digits_images(const EmbeddedImages& digits) {
  // from_blob wants a mutable pointer and the tensor is only read.
  return scale_images(at::from_blob(const_cast<std::uint8_t*>(digits.images), {digits.count, 8, 8}, at::kByte), 16);
}

at::Tensor digits_labels(const EmbeddedImages& digits) {
  return at::from_blob(const_cast<std::uint8_t*>(digits.labels), {digits.count}, at::kByte).to(at::kLong);
}

/// The four usual names of the file DIR/STEM-IDXn-ubyte.
std::vector<std::string> idx_names(const std::string& dir, const std::string& stem, const std::string& kind) {
  std::vector<std::string> names;
  for (const char* separator : {"-", "."})
    for (const char* suffix : {"", ".gz"})
      names.push_back((std::filesystem::path(dir) / (stem + separator + kind + suffix)).string());
  return names;
}

/// The first of them that exists.
std::string find_idx(const std::string& dir, const std::string& stem, const std::string& kind) {
  for (const std::string& path : idx_names(dir, stem, kind)) {
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path;
  }
  C10_THROW_ERROR(ValueError, c10::str("data set mnist:", dir, " has no file ", stem, "-", kind, ", ", stem, ".", kind,
                                       ", nor either with .gz"));
}

struct Part {
  at::Tensor images, labels;
};

Part load_mnist_part(const std::string& dir, const std::string& stem) {
  const std::string images_path = find_idx(dir, stem + "-images", "idx3-ubyte");
  const std::string labels_path = find_idx(dir, stem + "-labels", "idx1-ubyte");
  const at::Tensor images = tensor_of(formats::load_idx(images_path));
  const at::Tensor labels = tensor_of(formats::load_idx(labels_path));
  TORCH_CHECK_VALUE(images.dim() == 3, images_path, ": expected images of rank 3, got sizes ", images.sizes());
  TORCH_CHECK_VALUE(labels.dim() == 1, labels_path, ": expected labels of rank 1, got sizes ", labels.sizes());
  TORCH_CHECK_VALUE(images.size(0) == labels.size(0), images_path, " holds ", images.size(0), " images and ",
                    labels_path, " holds ", labels.size(0), " labels");
  TORCH_CHECK_VALUE(images.numel() > 0, images_path, " has sizes ", images.sizes(), ", which is empty");
  const auto* first = labels.const_data_ptr<std::uint8_t>();
  const std::uint8_t largest = *std::max_element(first, first + labels.numel());
  TORCH_CHECK_VALUE(largest < digit_classes, labels_path, " holds the label ", int{largest}, ", labels are below ",
                    digit_classes);
  return {scale_images(images, 255), labels.to(at::kLong)};
}

Dataset load_mnist(const std::string& dir) {
  const Part train = load_mnist_part(dir, "train");
  const Part test = load_mnist_part(dir, "t10k");
  TORCH_CHECK_VALUE(train.images.sizes().slice(1) == test.images.sizes().slice(1), "data set mnist:", dir,
                    " has train images of ", train.images.sizes().slice(2), " and test images of ",
                    test.images.sizes().slice(2));
  return {train.images, train.labels, test.images, test.labels, digit_classes, "mnist"};
}

Part cifar10_part(const std::vector<std::string>& paths) {
  std::vector<at::Tensor> files;
  files.reserve(paths.size());
  for (const std::string& path : paths) files.push_back(tensor_of(formats::load_cifar10_records(path)));
  const at::Tensor records = at::cat(files);
  return {records.slice(1, 1).to(at::kFloat).div_(255).view({-1, 3, 32, 32}), records.select(1, 0).to(at::kLong)};
}

/// The five files to train with and the one to test with.
std::vector<std::string> cifar10_names(const std::string& dir) {
  const auto path = [&](const std::string& name) { return (std::filesystem::path(dir) / name).string(); };
  std::vector<std::string> names;
  for (int i = 1; i <= 5; ++i) names.push_back(path("data_batch_" + std::to_string(i) + ".bin"));
  names.push_back(path("test_batch.bin"));
  return names;
}

Dataset load_cifar10(const std::string& dir) {
  std::vector<std::string> batches = cifar10_names(dir);
  const Part test = cifar10_part({batches.back()});
  batches.pop_back();
  const Part train = cifar10_part(batches);
  return {train.images, train.labels, test.images, test.labels, formats::cifar10_classes, "cifar10"};
}

/// The part of a spec behind "KIND:"; empty for another kind.
std::string behind(const std::string& spec, const std::string& prefix) {
  return spec.starts_with(prefix) ? spec.substr(prefix.size()) : std::string();
}

Dataset load(const std::string& spec, const DataOptions& options) {
  if (spec == "digits") {
    return {digits_images(digits_train),
            digits_labels(digits_train),
            digits_images(digits_test),
            digits_labels(digits_test),
            digit_classes,
            "digits"};
  }
  if (const std::string dir = behind(spec, "mnist:"); !dir.empty()) return load_mnist(dir);
  if (const std::string dir = behind(spec, "cifar10:"); !dir.empty()) return load_cifar10(dir);
  if (const std::string file = behind(spec, "csv:"); !file.empty()) return load_csv_dataset(file, options);
  if (const std::string dir = picture_folder(spec); !dir.empty()) return load_image_folder(dir, options.pictures);
  TORCH_CHECK_VALUE(false, "data set \"", spec,
                    "\" is unknown; the forms are digits, mnist:DIR, cifar10:DIR, csv:FILE and images:DIR");
}

}  // namespace

at::Tensor pixels(const at::Tensor& images) {
  return images.scalar_type() == at::kByte ? images.to(at::kFloat).div_(255) : images;
}

std::string picture_folder(const std::string& spec) { return behind(spec, "images:"); }

std::vector<std::string> files_of(const std::string& spec) {
  std::vector<std::string> files;
  if (const std::string dir = behind(spec, "mnist:"); !dir.empty())
    for (const char* part : {"train", "t10k"}) {
      const std::string stem = part;
      for (const auto& names :
           {idx_names(dir, stem + "-images", "idx3-ubyte"), idx_names(dir, stem + "-labels", "idx1-ubyte")})
        files.insert(files.end(), names.begin(), names.end());
    }
  if (const std::string dir = behind(spec, "cifar10:"); !dir.empty()) files = cifar10_names(dir);
  if (const std::string file = behind(spec, "csv:"); !file.empty()) files = {file};
  if (const std::string dir = picture_folder(spec); !dir.empty())
    files = with_value_errors([&] { return image_names(dir, /*nested=*/true); });
  return files;
}

Dataset load_dataset(const std::string& spec, const DataOptions& options) {
  const formats::TableOptions& table = options.table;
  const formats::TableOptions none;
  const bool for_tables = !table.label.empty() || !table.id.empty() || !table.drop.empty() || !table.keep.empty() ||
                          table.regression || table.missing != none.missing || table.header ||
                          table.split.kind != none.split.kind || table.split.seed != none.split.seed ||
                          table.numbers.decimal != none.numbers.decimal || table.numbers.thousands != 0 ||
                          table.numbers.missing || !options.test_file.empty() || options.folds > 0 ||
                          table.test_share != none.test_share || options.csv.comment != 0 ||
                          !options.asked.drop.empty() || options.asked.refuse_unseen || options.asked.header ||
                          options.asked.decimal || options.asked.thousands || options.asked.missing;
  TORCH_CHECK_VALUE(!for_tables || spec.starts_with("csv:"), "data set \"", spec,
                    "\" is no table: labels, columns, missing values, tasks and shares of rows are for csv:FILE");
  const PictureOptions& pictures = options.pictures;
  TORCH_CHECK_VALUE(
      (!pictures.size && !pictures.fit && !pictures.nested && !pictures.skip_broken) || spec.starts_with("images:"),
      "data set \"", spec, "\" is no folder of pictures: --size, --fit, --nested and --skip-broken are for images:DIR");
  return with_value_errors([&] {
    Dataset data = load(spec, options);
    const bool has_part = data.validation_images.defined();
    TORCH_CHECK_VALUE(!has_part || data.table || !options.validation_share, data.name, ": a share of ",
                      options.validation_share.value_or(0),
                      " for validation is asked for, and the folder has its own validation pictures");
    if ((options.validation || options.validation_share) && !has_part)
      set_aside_validation(data, options.validation_share.value_or(usual_validation_share));
    return data;
  });
}

}  // namespace bie::data
