// Files of images that a model or an exported net is asked about.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bie::formats {

struct SampleForm {
  std::vector<std::int64_t> image;   ///< channels, height, width of the model's images
  bool unit_range = true;            ///< the model takes values in [0, 1]; any numbers if not
  std::optional<double> white = {};  ///< values are divided by it; where not given, bytes by 255 and no others
};

/// [count, channels, height, width].
struct Samples {
  std::int64_t count = 0;
  std::vector<float> values;
};

/// Every image of a file. The first bytes tell what the file is:
///   PNG   one image; grey or coloured as the model wants it
///   IDX   (.gz too) [n, height, width], bytes
///   NPY   [height, width], [channels, height, width], [n, ...] of either, or flat rows [n, channels * height * width]
///   CSV   a row an image, its numbers in the order channel, row, column; a column of labels is left out
/// @throws Error, one sentence naming the file: also where its images are of another size, and where values are outside
/// [0, 1] for a model that takes these.
Samples load_samples(const std::string& path, const SampleForm& form);

}  // namespace bie::formats
