#include "data/image_folder.h"

#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "bie/formats/error.h"
#include "bie/formats/picture.h"
#include "data/room_for_bytes.h"
#include "data/split.h"
#include "data/workers.h"
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

/// Entries of a folder, sorted by name, without those that begin with a dot.
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
  return suffix == ".png" || suffix == ".jpg" || suffix == ".jpeg" || suffix == ".webp";
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
    formats::fail_file(kind, dir.string(), "expected at least 2 class folders, got ", files.classes.size());
  for (std::size_t label = 0; label < files.classes.size(); ++label) {
    const fs::path folder = dir / files.classes[label];
    if (!formats::is_utf8(files.classes[label])) formats::fail_file(kind, folder.string(), "the name is not UTF-8");
    const std::size_t before = files.paths.size();
    add_pictures(folder, static_cast<std::int64_t>(label), nested, 0, &files);
    if (files.paths.size() == before)
      formats::fail_file(kind, folder.string(), "holds no .png, .jpg, .jpeg or .webp file",
                         nested ? "" : "; --nested looks into its folders");
  }
  return files;
}

/// Common properties of all pictures, from their headers alone.
struct Common {
  formats::PictureForm form;
  bool colour = false, one_size = true;
};

/// Pictures that cannot be read, with the sentences that say why. Without `skips` the first of them is an error.
class Broken {
 public:
  explicit Broken(bool skips) : skips_(skips) {}

  /// Calls read(); false where it refuses a file that is to be left out. May be called from several threads.
  template <class Read>
  bool can(const Read& read) {
    if (!skips_) {
      read();
      return true;
    }
    try {
      read();
      return true;
    } catch (const formats::Error& error) {
      const std::lock_guard<std::mutex> lock(mutex_);
      sentences_.emplace_back(error.what());
      return false;
    }
  }

  void tell(const std::string& dir, Dataset* data) {
    if (sentences_.empty()) return;
    constexpr std::size_t most = 20;
    std::sort(sentences_.begin(), sentences_.end());
    const std::size_t count = sentences_.size();
    data->notes.push_back(
        formats::joined(dir, ": ", count, count == 1 ? " picture is" : " pictures are", " left out (--skip-broken):"));
    for (std::size_t i = 0; i < std::min(count, most); ++i) data->notes.push_back(sentences_[i]);
    if (count > most) data->notes.push_back(formats::joined("and ", count - most, " more"));
  }

 private:
  bool skips_;
  std::mutex mutex_;
  std::vector<std::string> sentences_;
};

/// The sizes and colours of all files; those whose headers cannot be read are taken off the lists.
Common common_of(const std::string& dir, std::vector<Files*> parts, Broken* broken) {
  std::optional<Common> common;
  for (Files* const files : parts) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < files->paths.size(); ++i) {
      formats::PictureFacts own{};
      if (!broken->can([&] { own = formats::picture_facts(files->paths[i]); })) continue;
      if (!common) common = Common{{own.height, own.width}, own.colour};
      common->one_size = common->one_size && own.height == common->form.height && own.width == common->form.width;
      common->colour |= own.colour;
      std::swap(files->paths[kept], files->paths[i]);
      files->labels[kept++] = files->labels[i];
    }
    files->paths.resize(kept);
    files->labels.resize(kept);
  }
  if (!common) formats::fail_file(kind, dir, "holds no picture that can be read");
  return *common;
}

/// The pictures of a part, uint8 [n, channels, height, width], and their labels, read by all threads.
void load_pictures(const std::vector<std::string>& paths, std::vector<std::int64_t> labels, const Common& common,
                   Broken* broken, at::Tensor* images, at::Tensor* their_labels) {
  const std::int64_t channels = common.colour ? 3 : 1, count = std::ssize(paths);
  const auto& [height, width, fit] = common.form;
  *images = room_for_bytes({count, channels, height, width});
  auto* const first = images->mutable_data_ptr<std::uint8_t>();
  const std::int64_t bytes = channels * height * width;
  std::vector<char> is_read(paths.size(), 0);
  on_workers(count, at::get_num_threads(), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    is_read[at] = broken->can([&] {
      const formats::Array picture = formats::load_picture(paths[at], channels, common.form);
      std::memcpy(first + i * bytes, picture.data<std::uint8_t>(), static_cast<std::size_t>(bytes));
    });
  });
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (is_read[static_cast<std::size_t>(i)] == 0) continue;
    if (kept != i) std::memmove(first + kept * bytes, first + i * bytes, static_cast<std::size_t>(bytes));
    labels[static_cast<std::size_t>(kept++)] = labels[static_cast<std::size_t>(i)];
  }
  labels.resize(static_cast<std::size_t>(kept));
  *images = images->narrow(0, 0, kept);
  *their_labels = at::tensor(labels);
}

/// Every class has a picture left to train with, and there is one to test with.
void check_left(const std::string& dir, const Dataset& data, const std::vector<std::string>& classes) {
  const at::Tensor& labels = data.train_labels;
  if (data.test_labels.numel() == 0) formats::fail_file(kind, dir, "holds no test picture that can be read");
  std::vector<std::int64_t> counts(classes.size(), 0);
  for (std::int64_t i = 0; i < labels.numel(); ++i)
    ++counts[static_cast<std::size_t>(labels.const_data_ptr<std::int64_t>()[i])];
  for (std::size_t i = 0; i < classes.size(); ++i)
    if (counts[i] == 0)
      formats::fail_file(kind, dir, "class ", formats::in_quotes(classes[i]),
                         " has no training picture that can be read");
}

/// The folders of a data set that is split already. Empty: the folder is one heap.
struct Parts {
  fs::path train, validation, test;
  bool test_is_validation = false;    ///< there is no folder for testing
  std::vector<std::string> left_out;  ///< folders beside them
};

/// Names in any case.
constexpr std::pair<std::string_view, int> part_names[] = {{"train", 0}, {"training", 0}, {"validation", 1},
                                                           {"valid", 1}, {"val", 1},      {"dev", 1},
                                                           {"test", 2},  {"testing", 2}};

Parts parts_of(const fs::path& dir) {
  std::array<std::string, 3> found;
  Parts parts;
  std::string twice;
  for (const std::string& name : entries_of(dir).folders) {
    const std::string lower = formats::lower(name);
    const auto* const part =
        std::find_if(std::begin(part_names), std::end(part_names), [&](const auto& p) { return p.first == lower; });
    if (part == std::end(part_names)) {
      parts.left_out.push_back((dir / name).string());
      continue;
    }
    std::string& place = found[static_cast<std::size_t>(part->second)];
    if (!place.empty() && twice.empty()) twice = formats::joined(place, " and ", name);
    place = name;
  }
  if (found[0].empty() || (found[1].empty() && found[2].empty())) return {};
  if (!twice.empty()) formats::fail_file(kind, dir.string(), "has two folders for one part: ", twice);
  const auto path = [&](const std::string& name) { return name.empty() ? fs::path() : dir / name; };
  parts.train = path(found[0]);
  parts.validation = path(found[1]);
  parts.test = path(found[2]);
  if (parts.test.empty()) {
    parts.test = std::exchange(parts.validation, {});
    parts.test_is_validation = true;
  }
  return parts;
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

/// The files of each part, of the same classes.
struct PartFiles {
  Files train, validation, test;

  std::vector<std::string> all(std::vector<std::string> Files::*member) const {
    std::vector<std::string> all;
    for (const Files* files : {&train, &validation, &test})
      all.insert(all.end(), (files->*member).begin(), (files->*member).end());
    return all;
  }
};

PartFiles files_of(const std::string& dir, const Parts& parts, bool nested) {
  PartFiles files{files_in(parts.train, nested), {}, files_in(parts.test, nested)};
  if (!parts.validation.empty()) files.validation = files_in(parts.validation, nested);
  const auto check = [&](const fs::path& part, const Files& own) {
    if (own.classes != files.train.classes)
      formats::fail_file(kind, dir, "has not the same classes in train and in ", part.filename().string());
  };
  check(parts.test, files.test);
  if (!parts.validation.empty()) check(parts.validation, files.validation);
  return files;
}

void load_parts(const std::string& dir, const Parts& parts, const PictureOptions& options, Dataset* data) {
  PartFiles files = files_of(dir, parts, options.nested);
  Broken broken(options.skip_broken);
  Common common = common_of(dir, {&files.train, &files.validation, &files.test}, &broken);
  choose_size(dir, options, &common, data);
  std::vector<std::string> left_out = files.all(&Files::left_out);
  left_out.insert(left_out.end(), parts.left_out.begin(), parts.left_out.end());
  count_left_out(dir, left_out, data);
  if (parts.test_is_validation)
    data->notes.push_back(formats::joined(dir, " has no folder test: ", parts.test.string(), " is tested with"));
  const auto load = [&](const Files& part, at::Tensor* images, at::Tensor* labels) {
    if (!part.paths.empty()) load_pictures(part.paths, part.labels, common, &broken, images, labels);
  };
  load(files.train, &data->train_images, &data->train_labels);
  load(files.validation, &data->validation_images, &data->validation_labels);
  load(files.test, &data->test_images, &data->test_labels);
  broken.tell(dir, data);
  check_left(dir, *data, files.train.classes);
  data->class_names = files.train.classes;
}

/// One heap: the files are split, so that no picture is in memory twice.
void load_heap(const std::string& dir, const PictureOptions& options, Dataset* data) {
  Files files = files_in(dir, options.nested);
  Broken broken(options.skip_broken);
  Common common = common_of(dir, {&files}, &broken);
  choose_size(dir, options, &common, data);
  count_left_out(dir, files.left_out, data);
  const at::Tensor labels = at::tensor(files.labels);
  const Split rows = split_rows(labels, 0.2, formats::joined(kind, " ", dir), "testing");
  const auto load = [&](const at::Tensor& chosen, at::Tensor* images, at::Tensor* their_labels) {
    std::vector<std::string> paths;
    std::vector<std::int64_t> own_labels;
    for (std::int64_t i = 0; i < chosen.numel(); ++i) {
      const auto row = static_cast<std::size_t>(chosen.const_data_ptr<std::int64_t>()[i]);
      paths.push_back(files.paths[row]);
      own_labels.push_back(files.labels[row]);
    }
    load_pictures(paths, std::move(own_labels), common, &broken, images, their_labels);
  };
  load(rows.train, &data->train_images, &data->train_labels);
  load(rows.other, &data->test_images, &data->test_labels);
  broken.tell(dir, data);
  check_left(dir, *data, files.classes);
  data->class_names = files.classes;
}

}  // namespace

std::vector<std::string> image_names(const std::string& dir, bool nested) {
  const Parts parts = parts_of(dir);
  return parts.train.empty() ? files_in(dir, nested).paths : files_of(dir, parts, nested).all(&Files::paths);
}

Dataset load_image_folder(const std::string& dir, const PictureOptions& options) {
  Dataset data;
  const Parts parts = parts_of(dir);
  if (parts.train.empty())
    load_heap(dir, options, &data);
  else
    load_parts(dir, parts, options, &data);
  data.classes = std::ssize(data.class_names);
  data.name = fs::path(dir).lexically_normal().filename().string();
  if (data.name.empty()) data.name = "images";  // DIR ends in a slash
  return data;
}

}  // namespace bie::data
