// bie import. Protobuf is in the half without torch alone, as torch brings another one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands/commands.h"

namespace bie::cli {

struct ImportArguments {
  std::string model, out, calibration;
  std::optional<int> bits, first, last;
  std::optional<double> white;
  std::int64_t samples = 512;
  std::string range;             ///< "": guessed
  std::vector<float> mean, std;  ///< of the input's channels
};

/// Each half has its own. @throws formats::Error; the half with torch says where the other one is.
void import_net(const ImportArguments& arguments, const Global& global);

}  // namespace bie::cli
