// Files of images that a model or an exported net is asked about.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bie/formats/input_range.h"
#include "bie/formats/picture.h"
#include "bie/formats/table.h"

namespace bie::formats {

struct SampleForm {
  std::vector<std::int64_t> image;      ///< channels, height, width of the model's images
  InputRange range = InputRange::unit;  ///< of the model's values
  std::optional<double> white = {};     ///< the file's value of white, in place of what `range` takes for it
  std::optional<TableForm> table = {};  ///< of the table that the model was trained with; rows of numbers if none
  AskedTable asked = {};                ///< what is said of tables
  CsvForm csv = {};
  std::optional<Fit> fit = {};  ///< how pictures of other sizes are brought to the model's; refused if not
};

/// [count, channels, height, width].
struct Samples {
  std::int64_t count = 0;
  std::vector<float> values = {};
  bool is_table = false;
  bool holds_bytes = false;
  std::string id_name = {};              ///< of the column that the ids are from
  std::vector<std::string> ids = {};     ///< of a table that has such a column, one per row
  std::vector<std::string> labels = {};  ///< of a table that has them, one per row
  std::vector<std::string> notes = {};   ///< sentences about values of a table that training lacked
};

/// Every image of a file. The first bytes tell what the file is:
///   PNG, JPEG   one image; grey or coloured as the model wants it
///   IDX   (.gz too) [n, height, width], bytes
///   NPY   [height, width], [channels, height, width], [n, ...] of either, or flat rows [n, channels * height * width]
///   CSV   a table as the model was trained with; of a model of images a row an image, its numbers in the order
///   channel,
///         row, column, and labels where there is one more. "-" is a table from standard input
/// @throws Error, one sentence naming the file: also where its images are of another size, and where values are outside
/// of the model's range.
Samples load_samples(const std::string& path, const SampleForm& form);

}  // namespace bie::formats
