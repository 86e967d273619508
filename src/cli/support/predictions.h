// What commands say of images: the likeliest classes of each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/commands/commands.h"

namespace bie::cli {

struct Guess {
  std::string name;
  double probability;
};

struct Prediction {
  std::string file;
  std::int64_t index, count;   ///< of the file's images
  std::vector<Guess> guesses;  ///< the likeliest first
};

/// "digits.npy[3]"; the number of the image where a file holds several.
std::string place_of(const std::string& file, std::int64_t index, std::int64_t count);

/// The result of `bie predict`.
void print_predictions(const std::string& model, const std::vector<Prediction>& predictions, const Global& global);

}  // namespace bie::cli
