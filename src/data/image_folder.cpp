#include "data/image_folder.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "bie/formats/error.h"
#include "bie/formats/picture.h"
#include "data/split.h"
#include "data/tensors.h"
#include "formats/json_text.h"
#include "formats/lower.h"

namespace bie::data {
namespace {

namespace fs = std::filesystem;
constexpr const char* kind = "image folder";
constexpr std::int64_t largest_side = 128, usual_side = 64;

struct Files {
  std::vector<std::string> classes, paths;
  std::vector<std::int64_t> labels;
  std::vector<std::string> left_out;  // that are no pictures
};

/// What a folder holds, sorted by name; what begins with a dot is not seen.
struct Entries {
  std::vector<std::string> folders, files;
};

Entries entries_of(const fs::path& dir) {
  Entries found;
  std::error_code error;
  for (fs::directory_iterator at(dir, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    std::error_code ignored;
    const std::string name = at->path().filename().string();
    if (name[0] == '.') continue;
    (at->is_directory(ignored) ? found.folders : found.files).push_back(name);
  }
  if (error) formats::fail_file(kind, dir.string(), "cannot be read: ", error.message());
  std::sort(found.folders.begin(), found.folders.end());
  std::sort(found.files.begin(), found.files.end());
  return found;
}

/// Named as a picture: what it then is, its reader says.
bool named_as_picture(const fs::path& path) {
  const std::string suffix = formats::lower(path.extension().string());
  return suffix == ".png" || suffix == ".jpg" || suffix == ".jpeg";
}

void add_pictures(const fs::path& folder, std::int64_t label, bool nested, int depth, Files* files) {
  const Entries entries = entries_of(folder);
  for (const std::string& name : entries.files) {
    const fs::path path = folder / name;
    if (!named_as_picture(path)) {
      files->left_out.push_back(path.string());
      continue;
    }
    files->paths.push_back(path.string());
    files->labels.push_back(label);
  }
  constexpr int deepest = 16;
  for (const std::string& name : entries.folders) {
    if (!nested)
      files->left_out.push_back((folder / name).string());
    else if (depth == deepest)
      formats::fail_file(kind, (folder / name).string(), "lies below ", deepest, " folders");
    else
      add_pictures(folder / name, label, nested, depth + 1, files);
  }
}

Files files_in(const fs::path& dir, bool nested) {
  Files files;
  const Entries entries = entries_of(dir);
  files.classes = entries.folders;
  for (const std::string& name : entries.files) files.left_out.push_back((dir / name).string());
  if (files.classes.size() < 2)
    formats::fail_file(kind, dir.string(), "holds ", files.classes.size(), " class folders, at least 2 are wanted");
  for (std::size_t label = 0; label < files.classes.size(); ++label) {
    const fs::path folder = dir / files.classes[label];
    if (!formats::is_utf8(files.classes[label])) formats::fail_file(kind, folder.string(), "the name is not UTF-8");
    const std::size_t before = files.paths.size();
    add_pictures(folder, static_cast<std::int64_t>(label), nested, 0, &files);
    if (files.paths.size() == before)
      formats::fail_file(kind, folder.string(), "holds no .png, .jpg or .jpeg file",
                         nested ? "" : "; --nested looks into its folders");
  }
  return files;
}

/// What all pictures have in common, from their headers alone.
struct Common {
  formats::PictureForm form;
  bool colour = false, one_size = true;
};

Common common_of(const std::vector<std::string>& paths) {
  const formats::PictureFacts first = formats::picture_facts(paths.front());
  Common common{{first.height, first.width}, first.colour};
  for (const std::string& path : paths) {
    const formats::PictureFacts own = formats::picture_facts(path);
    common.one_size = common.one_size && own.height == first.height && own.width == first.width;
    common.colour |= own.colour;
  }
  return common;
}

/// float32 [n, channels, height, width] in [0, 1].
at::Tensor load_pictures(const std::vector<std::string>& paths, const Common& common) {
  const std::int64_t channels = common.colour ? 3 : 1;
  const auto& [height, width, fit] = common.form;
  const at::Tensor images = at::empty({static_cast<std::int64_t>(paths.size()), channels, height, width}, at::kByte);
  for (std::size_t i = 0; i < paths.size(); ++i)
    images.select(0, static_cast<std::int64_t>(i))
        .copy_(tensor_of(formats::load_picture(paths[i], channels, common.form)));
  return images.to(at::kFloat).div_(255);
}

bool is_split(const fs::path& dir) {
  std::error_code ignored;
  return fs::is_directory(dir / "train", ignored) && fs::is_directory(dir / "test", ignored);
}

/// The size that the options name, or that fits what there is.
void choose_size(const std::string& dir, const PictureOptions& options, Common* common, Dataset* data) {
  formats::PictureForm& form = common->form;
  const bool large = form.height > largest_side || form.width > largest_side;
  if (!options.size && common->one_size && !large && !options.fit) return;
  const std::string was = common->one_size ? formats::joined(form.height, "x", form.width) : "several sizes";
  form = {usual_side, usual_side, options.fit.value_or(formats::Fit::crop)};
  if (options.size) form = {(*options.size)[0], (*options.size)[1], form.fit};
  data->fit = form.fit;
  if (!options.size)
    data->notes.push_back(formats::joined(dir, ": pictures of ", was, " are brought to ", form.height, "x", form.width,
                                          "; --size HxW names another size"));
}

void count_left_out(const std::string& dir, const std::vector<std::string>& left_out, Dataset* data) {
  if (!left_out.empty())
    data->notes.push_back(formats::joined(dir, ": ", left_out.size(), left_out.size() == 1 ? " entry" : " entries",
                                          " left out that are no pictures, such as ", left_out.front()));
}

}  // namespace

std::vector<std::string> image_names(const std::string& dir, bool nested) {
  if (!is_split(dir)) return files_in(dir, nested).paths;
  std::vector<std::string> all = files_in(fs::path(dir) / "train", nested).paths;
  const std::vector<std::string> test = files_in(fs::path(dir) / "test", nested).paths;
  all.insert(all.end(), test.begin(), test.end());
  return all;
}

Dataset load_image_folder(const std::string& dir, const PictureOptions& options) {
  Dataset data;
  std::vector<std::string> classes;
  if (is_split(dir)) {
    const Files train = files_in(fs::path(dir) / "train", options.nested),
                test = files_in(fs::path(dir) / "test", options.nested);
    if (train.classes != test.classes) formats::fail_file(kind, dir, "has not the same classes in train and in test");
    std::vector<std::string> all = train.paths, left_out = train.left_out;
    all.insert(all.end(), test.paths.begin(), test.paths.end());
    left_out.insert(left_out.end(), test.left_out.begin(), test.left_out.end());
    Common common = common_of(all);
    choose_size(dir, options, &common, &data);
    count_left_out(dir, left_out, &data);
    data.train_images = load_pictures(train.paths, common);
    data.train_labels = at::tensor(train.labels);
    data.test_images = load_pictures(test.paths, common);
    data.test_labels = at::tensor(test.labels);
    classes = train.classes;
  } else {
    const Files files = files_in(dir, options.nested);
    Common common = common_of(files.paths);
    Dataset found;
    choose_size(dir, options, &common, &found);
    count_left_out(dir, files.left_out, &found);
    const at::Tensor images = load_pictures(files.paths, common);
    data = split_rows(images, at::tensor(files.labels), 0.2, c10::str(kind, " ", dir));
    data.fit = found.fit;
    data.notes = std::move(found.notes);
    classes = files.classes;
  }
  data.classes = static_cast<std::int64_t>(classes.size());
  data.class_names = std::move(classes);
  data.name = fs::path(dir).lexically_normal().filename().string();
  if (data.name.empty()) data.name = "images";  // DIR ends in a slash
  return data;
}

}  // namespace bie::data
