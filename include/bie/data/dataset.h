// Image classification sets, ready for training.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bie/formats/picture.h"
#include "bie/formats/table.h"

namespace bie::data {

struct Dataset {
  /// [n, channels, height, width], float32 in [0, 1], or uint8 that stand for them times 255 (of folders of pictures);
  /// int64 [n], or float32 [n, k] to train a regression.
  at::Tensor train_images, train_labels;
  at::Tensor test_images, test_labels;
  std::int64_t classes;  ///< every label is in [0, classes)
  std::string name;
  std::vector<std::string> class_names = {};  ///< empty where the classes are numbers
  /// Rows of any numbers, [n, 1, 1, features], instead of pixels in [0, 1]; of a regression with targets float32 [n,
  /// 1].
  std::optional<formats::TableForm> table = {};
  std::optional<formats::Fit> fit = {};  ///< pictures were brought to one size so
  /// To choose by, neither to train nor to test with; undefined where none were set aside.
  at::Tensor validation_images = {}, validation_labels = {};
  std::vector<std::string> notes = {};  ///< sentences about what was found out of the data
  /// The model that is asked was trained with all rows of the table: none is for testing.
  bool test_is_training = false;
};

/// How folders of pictures are read.
struct PictureOptions {
  std::optional<std::array<std::int64_t, 2>> size = {};  ///< height, width; where not given: see load_dataset
  std::optional<formats::Fit> fit = {};                  ///< crop
  bool nested = false;                                   ///< folders below those of the classes are read too
  bool skip_broken = false;                              ///< pictures that cannot be read are left out, with a note
};

inline constexpr double usual_validation_share = 0.1;

/// How tables and folders of pictures are read.
struct DataOptions {
  PictureOptions pictures = {};
  formats::CsvForm csv = {};
  formats::TableOptions table = {};
  std::string test_file = {};  ///< rows to test with, in place of a share of the training file's
  /// Cross-validation deals the rows of a table out to so many folds; those of one are for testing, in place of a
  /// share. 0: no cross-validation.
  int folds = 0, fold = 0;
  /// Whether samples are to be set aside to choose by: those of DIR/validation of a folder of pictures that has it,
  /// else a share of the training samples of each class, at equal distances; of a table as its rows are split.
  bool validation = false;
  std::optional<double> validation_share = {};  ///< usual_validation_share where not given
  /// For a model that is asked about the data: its table's form and its classes. A table other than the one it was
  /// trained with is then used for testing as a whole, and all its rows stand in both parts.
  std::optional<formats::TableForm> form = {};
  std::vector<std::string> classes = {};
  formats::AskedTable asked = {};  ///< of a table that such a model is asked about
};

/// @param spec  "digits": the 8 x 8 handwritten digits compiled into the library (1437 train, 360 test),
///              "mnist:DIR": the four IDX files of MNIST in DIR, plain or .gz, named train-images-idx3-ubyte or
///              train-images.idx3-ubyte and so on,
///              "cifar10:DIR": the binary files data_batch_1.bin ... data_batch_5.bin and test_batch.bin in DIR, each
///              any number of records of a label and 3 x 32 x 32 bytes,
///              "csv:FILE": a table of inputs and a label (formats/table.h), of which a random fifth of the rows of
///              each class is for testing unless the options say otherwise; "csv:-" is standard input, or
///              "images:DIR": PNG, JPEG and WebP files DIR/CLASS/*, every fifth of a class for testing, or
///              DIR/train/CLASS/*, DIR/test/CLASS/* and DIR/validation/CLASS/* (also called val), of which one beside
///              train is enough. Pictures of several sizes, or with a side above 128, are brought to 64x64 unless the
///              options name a size.
/// @throws c10::ValueError, one sentence naming the file at fault, or the forms of a spec.
Dataset load_dataset(const std::string& spec, const DataOptions& options = {});

/// Images as float32: bytes divided by 255, floats as they are.
at::Tensor pixels(const at::Tensor& images);

/// The files that a spec names or looks for.
/// @throws c10::ValueError where an images:DIR is no such folder.
std::vector<std::string> files_of(const std::string& spec);

/// DIR of images:DIR; empty for another spec.
std::string picture_folder(const std::string& spec);

}  // namespace bie::data
