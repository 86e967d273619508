#include "data/image_folder.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "bie/formats/error.h"
#include "bie/formats/png.h"
#include "data/split.h"
#include "data/tensors.h"
#include "formats/json_text.h"

namespace bie::data {
namespace {

namespace fs = std::filesystem;
constexpr const char* kind = "image folder";

struct Files {
  std::vector<std::string> classes, paths;
  std::vector<std::int64_t> labels;
};

/// Names in a folder, sorted: folders, or files that end in .png.
std::vector<std::string> names_in(const fs::path& dir, bool folders) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(dir, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    std::error_code ignored;
    const std::string name = at->path().filename().string();
    std::string suffix = at->path().extension().string();
    std::transform(suffix.begin(), suffix.end(), suffix.begin(), [](unsigned char c) { return std::tolower(c); });
    if (folders ? at->is_directory(ignored) && name[0] != '.' : suffix == ".png") names.push_back(name);
  }
  if (error) formats::fail_file(kind, dir.string(), "cannot be read: ", error.message());
  std::sort(names.begin(), names.end());
  return names;
}

Files files_in(const fs::path& dir) {
  Files files;
  files.classes = names_in(dir, /*folders=*/true);
  if (files.classes.size() < 2)
    formats::fail_file(kind, dir.string(), "holds ", files.classes.size(), " class folders, at least 2 are wanted");
  for (std::size_t label = 0; label < files.classes.size(); ++label) {
    const fs::path folder = dir / files.classes[label];
    if (!formats::is_utf8(files.classes[label])) formats::fail_file(kind, folder.string(), "the name is not UTF-8");
    const std::vector<std::string> names = names_in(folder, /*folders=*/false);
    if (names.empty()) formats::fail_file(kind, folder.string(), "holds no .png file");
    for (const std::string& name : names) {
      files.paths.push_back((folder / name).string());
      files.labels.push_back(static_cast<std::int64_t>(label));
    }
  }
  return files;
}

/// The size of all images, and whether one has colour, from the headers alone.
formats::PngFacts common_facts(const std::vector<std::string>& paths) {
  formats::PngFacts facts = formats::png_facts(paths.front());
  for (const std::string& path : paths) {
    const formats::PngFacts own = formats::png_facts(path);
    if (own.height != facts.height || own.width != facts.width)
      formats::fail_file("PNG file", path, "is ", own.height, "x", own.width, ", ", paths.front(), " is ", facts.height,
                         "x", facts.width);
    facts.colour |= own.colour;
  }
  return facts;
}

/// float32 [n, channels, height, width] in [0, 1].
at::Tensor load_images(const std::vector<std::string>& paths, const formats::PngFacts& facts) {
  const std::int64_t channels = facts.colour ? 3 : 1;
  const at::Tensor images =
      at::empty({static_cast<std::int64_t>(paths.size()), channels, facts.height, facts.width}, at::kByte);
  for (std::size_t i = 0; i < paths.size(); ++i)
    images.select(0, static_cast<std::int64_t>(i)).copy_(tensor_of(formats::load_png(paths[i], channels)));
  return images.to(at::kFloat).div_(255);
}

bool is_split(const fs::path& dir) {
  std::error_code ignored;
  return fs::is_directory(dir / "train", ignored) && fs::is_directory(dir / "test", ignored);
}

}  // namespace

std::vector<std::string> image_names(const std::string& dir) {
  if (!is_split(dir)) return files_in(dir).paths;
  std::vector<std::string> all = files_in(fs::path(dir) / "train").paths;
  const std::vector<std::string> test = files_in(fs::path(dir) / "test").paths;
  all.insert(all.end(), test.begin(), test.end());
  return all;
}

Dataset load_image_folder(const std::string& dir) {
  Dataset data;
  std::vector<std::string> classes;
  if (is_split(dir)) {
    const Files train = files_in(fs::path(dir) / "train"), test = files_in(fs::path(dir) / "test");
    if (train.classes != test.classes) formats::fail_file(kind, dir, "has not the same classes in train and in test");
    std::vector<std::string> all = train.paths;
    all.insert(all.end(), test.paths.begin(), test.paths.end());
    const formats::PngFacts facts = common_facts(all);
    data.train_images = load_images(train.paths, facts);
    data.train_labels = at::tensor(train.labels);
    data.test_images = load_images(test.paths, facts);
    data.test_labels = at::tensor(test.labels);
    classes = train.classes;
  } else {
    const Files files = files_in(dir);
    const at::Tensor images = load_images(files.paths, common_facts(files.paths));
    data = split_rows(images, at::tensor(files.labels), 0.2, c10::str(kind, " ", dir));
    classes = files.classes;
  }
  data.classes = static_cast<std::int64_t>(classes.size());
  data.class_names = std::move(classes);
  data.name = fs::path(dir).lexically_normal().filename().string();
  if (data.name.empty()) data.name = "images";  // DIR ends in a slash
  return data;
}

}  // namespace bie::data
