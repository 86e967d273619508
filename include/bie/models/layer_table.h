// A model's layers as rows of a table: for logs and `bie`.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

namespace bie::models {

/// A module that holds tensors of its own.
struct LayerRow {
  std::string name, description;  ///< "block1.product", "BinaryLinear(1000, 37, int8 weight)"
  int bits;                       ///< of the weight; 32 for float layers
  std::int64_t weights;           ///< elements of the weight; 0 for layers without one
  std::int64_t bytes;             ///< of all its tensors as they are held
};

std::vector<LayerRow> layer_rows(torch::nn::Module& model);
/// The rows as aligned text with a line of totals.
std::string layer_table(torch::nn::Module& model);

}  // namespace bie::models
